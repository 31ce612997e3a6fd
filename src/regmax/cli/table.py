"""`regmax table`: run folders as the paper's tables."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from regmax.cli.errors import CommandError


def run(arguments: Sequence[str]) -> int:
    """Print the tables of all finished runs."""
    try:
        from regmax.experiments.errors import ExperimentError
        from regmax.experiments.tables import FORMATS, VIEWS, find_runs, tables
    except ModuleNotFoundError as error:
        raise CommandError(f"{error.name} is missing: `pip install 'regmax[experiments]'`.") from error
    parser = argparse.ArgumentParser(
        prog="regmax table", description="The paper's tables from finished runs."
    )
    where = "folders of runs, or folders above them (runs)"
    parser.add_argument("runs", type=Path, nargs="*", default=[Path("runs")], metavar="FOLDER", help=where)
    parser.add_argument("--format", choices=FORMATS, default="terminal", help="(%(default)s)")
    parser.add_argument("--show", choices=VIEWS, nargs="+", default=list(VIEWS), help="which tables (all)")
    options = parser.parse_args(arguments)
    try:
        made = tables(find_runs(options.runs), options.show)
    except ExperimentError as error:
        raise CommandError(str(error)) from error
    sys.stdout.write(FORMATS[options.format](made))
    return 0
