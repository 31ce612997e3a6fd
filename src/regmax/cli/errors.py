"""What a command raises when it cannot do what was asked."""


class CommandError(Exception):
    """Shown to the user as one line, without a traceback."""
