"""`regmax table`: the results of runs as the paper's tables."""

import sys
from collections.abc import Sequence
from pathlib import Path

from regmax.cli.experiments import one_line_errors, packages
from regmax.cli.parser import Parser

_ABOUT = """\
Print the results of finished runs as the paper's tables. A row is a configuration, with mean ± standard deviation over
its seeds; its label is the mapping and the settings in which the rows differ. BLEU is compared by sacrebleu's paired
bootstrap."""
_FORMATS = ("terminal", "markdown", "latex", "csv")
_VIEWS = ("scores", "attention", "speed")


def run(arguments: Sequence[str]) -> int:
    """Print the tables of all finished runs."""
    options = parser().parse(arguments)
    with packages():
        from regmax.experiments.tables import FORMATS, find_runs, tables
    with one_line_errors():
        made = tables(find_runs(options.runs), options.show)
    sys.stdout.write(FORMATS[options.format](made))
    return 0


def parser() -> Parser:
    """The options of the command."""
    made = Parser(prog="regmax table", description=_ABOUT)
    where = "run folders, or folders that contain runs (runs)"
    made.add_argument("runs", type=Path, nargs="*", default=[Path("runs")], metavar="FOLDER", help=where)
    made.add_argument("--format", choices=_FORMATS, default="terminal", help="output format (%(default)s)")
    made.add_argument("--show", choices=_VIEWS, nargs="+", default=list(_VIEWS), help="tables to print (all)")
    return made
