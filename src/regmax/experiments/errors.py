"""What an experiment raises when it cannot do what was asked."""


class ExperimentError(Exception):
    """Shown to the user as one line, without a traceback."""
