"""The command `regmax`."""

from regmax.cli.commands import main

__all__ = ["main"]
