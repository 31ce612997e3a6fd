"""The command `regmax`."""

from regmax.cli.main import main

__all__ = ["main"]
