"""What a command raises when it cannot do what was asked."""


class CommandError(Exception):
    """Shown to the user as one line, without a traceback; `code` is the exit code."""

    code = 2


class InterruptError(CommandError):
    """The user pressed Ctrl-C; the message says how to go on."""

    code = 130  # 128 + SIGINT, as shells count
