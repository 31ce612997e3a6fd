"""The entry point: lists the commands and imports only the requested one."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from regmax.cli.encoding import accept_every_letter
from regmax.cli.errors import CommandError, InterruptError
from regmax.cli.parser import Parser
from regmax.versions import __version__

# Each command is the module of its name in this folder, with functions `parser()` and `run(arguments) -> exit code`.
COMMANDS = {
    "demo": "map one sentence with every mapping, then train a model with each: tables and a report",
    "plot": "draw the paper's figures, learning curves, or heat maps of attention",
    "explore": "write a self-contained HTML page for exploring attention weights",
    "train": "train and test a model of the paper's experiments with one mapping",
    "evaluate": "test the best checkpoint of a run, on its test set or on other files",
    "table": "print the results of finished runs as the paper's tables",
    "bench": "benchmark every mapping against torch.softmax: tables, JSON and figures",
}
_EXAMPLES = """\
examples:
  regmax demo --quick
  regmax train translation --mapping fusedmax
  regmax explore --json scores.json
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `regmax COMMAND ...` and return the exit code: 0 done, 2 failed, 130 interrupted."""
    accept_every_letter()
    top = parser()
    argv = sys.argv[1:] if argv is None else argv
    if not argv:
        top.print_help()
        return 0
    options = top.parse_args(argv)
    try:
        code = int(import_module(f"regmax.cli.{options.command}").run(options.arguments))
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return _fail(options.command, InterruptError("interrupted."))
    except BrokenPipeError:
        # The reader, `head` say, has seen enough. Python must not flush into the closed pipe on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (CommandError, OSError) as error:
        return _fail(options.command, error)


def _fail(command: str, error: Exception) -> int:
    print(f"regmax {command}: {' '.join(str(error).split())}", file=sys.stderr)
    return error.code if isinstance(error, CommandError) else CommandError.code


def parser() -> argparse.ArgumentParser:
    """The parser of `regmax` itself."""
    listing = "\n".join(f"  {name:<10} {summary}" for name, summary in COMMANDS.items())
    made = Parser(
        prog="regmax",
        description="Attention weights that are exactly zero, contiguous or clustered.",
        epilog=f"commands:\n{listing}\n\n{_EXAMPLES}\n`regmax COMMAND --help` describes a command.",
    )
    made.add_argument("--version", action="version", version=f"regmax {__version__}")
    made.add_argument("command", metavar="COMMAND", choices=COMMANDS, help="one of the commands below")
    made.add_argument("arguments", metavar="...", nargs=argparse.REMAINDER, help="arguments of the command")
    return made
