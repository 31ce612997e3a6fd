"""`regmax evaluate`: the best model of a run, on its test set or on other files."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from regmax.cli.errors import CommandError


def run(arguments: Sequence[str]) -> int:
    """Print the scores; the run is not changed."""
    options = _parser().parse_args(arguments)
    try:
        from regmax.experiments import run as runs
        from regmax.experiments.errors import ExperimentError
    except ModuleNotFoundError as error:
        raise CommandError(f"{error.name} is missing: `pip install 'regmax[experiments]'`.") from error
    try:
        result = runs.evaluate(options.run, test=options.test, masks=options.masks, beam=options.beam)
    except ExperimentError as error:
        raise CommandError(str(error)) from error
    if options.json:
        record = {"scores": result.scores, "attention": result.attention, "signature": result.signature}
        sys.stdout.write(json.dumps(record, indent=1) + "\n")
        return 0
    for name, value in (result.scores | result.attention).items():
        sys.stdout.write(f"{name:<28}{value:12.2f}\n")
    sys.stdout.write(f"{result.signature}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="regmax evaluate", description="Test the best model of a run.")
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a run")
    files = "a source and its references, or a JSON-lines file (the run's own test set)"
    parser.add_argument("--test", nargs="+", default=(), metavar="FILE", help=files)
    parser.add_argument("--masks", default="", metavar="FILE", help="keep-masks of these sources")
    parser.add_argument("--beam", type=int, default=0, help="hypotheses kept in the search (the run's own)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser
