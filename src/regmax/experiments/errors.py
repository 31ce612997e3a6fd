"""The error of an experiment that cannot do what was requested."""


class ExperimentError(Exception):
    """Shown to the user as one line, without a traceback."""
