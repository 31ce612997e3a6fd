"""The entry point: lists the commands and imports only the requested one."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from regmax.cli.errors import CommandError
from regmax.versions import __version__

# Each command is the module of its name in this folder, with a function `run(arguments) -> exit code`.
COMMANDS = {
    "demo": "one sentence under every mapping, then a model trained with each: tables and a report",
    "plot": "draw the paper's figures, learning curves, or heat maps of sentences with their scores",
    "explore": "write one HTML file in which attention weights can be explored",
    "train": "train one of the paper's experiments with one mapping, and test it",
    "evaluate": "test the best model of a run, on its test set or on other files",
    "table": "print finished runs as the paper's tables",
    "bench": "time every mapping against torch.softmax: tables, JSON and pictures",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run `regmax COMMAND ...` and return the exit code: 0 done, 1 failed, 2 asked wrongly."""
    options = _parser().parse_args(argv)
    command = import_module(f"regmax.cli.{options.command}")
    try:
        return int(command.run(options.arguments))
    except (CommandError, OSError) as error:
        print(f"regmax {options.command}: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    listing = "\n".join(f"  {name:<10} {summary}" for name, summary in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="regmax",
        description="Attention weights that are exactly zero, contiguous or clustered.",
        epilog=f"commands:\n{listing}\n\n`regmax COMMAND --help` describes a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"regmax {__version__}")
    parser.add_argument("command", metavar="COMMAND", choices=COMMANDS, help="one of the commands below")
    parser.add_argument("arguments", metavar="...", nargs=argparse.REMAINDER, help="its own arguments")
    return parser
