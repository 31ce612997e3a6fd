"""Argument parsers with one-line errors; a command without its required arguments prints its help."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` whose errors are one line instead of the usage of forty options."""

    def __init__(self, *args: Any, **options: Any) -> None:
        options.setdefault("formatter_class", Wide)
        super().__init__(*args, **options)

    def error(self, message: str) -> NoReturn:
        text = " ".join(message.split()).rstrip(".")
        self.exit(2, f"{self.prog}: {text}. `{self.prog} --help` describes the options.\n")

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse a command's arguments; if none are given and some are required, print the help and exit."""
        if not arguments and any(action.required for action in self._actions):
            self.print_help()
            self.exit(0)
        return self.parse_args(arguments)


class Wide(argparse.RawDescriptionHelpFormatter):
    """Wide enough for one option per line; descriptions and epilogs are printed verbatim."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34, width=110)


def positive(text: str) -> int:
    """A positive integer of a command line, for `type=`."""
    number = int(text) if text.lstrip("+-").isdecimal() else 0
    if not 0 < number < 2**31:
        raise argparse.ArgumentTypeError(f"must be a positive integer. Got {text}")
    return number
