"""`regmax evaluate`: test the best checkpoint of a run, on its test set or on other files."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from regmax.cli.experiments import one_line_errors, packages, print_result
from regmax.cli.parser import Parser, positive

_ABOUT = """\
Test the best checkpoint of a run, and write the result where `regmax table` finds it.
The run itself is not changed."""


def run(arguments: Sequence[str]) -> int:
    """Print the scores, and the folder of the result last."""
    options = parser().parse(arguments)
    with packages():
        from regmax.experiments import run as runs
    with one_line_errors():
        result, folder = runs.evaluate(
            options.run, test=options.test, masks=options.masks, beam=options.beam, out=options.out
        )
    if result.complaint:
        print(f"regmax evaluate: warning: {result.complaint}", file=sys.stderr)
    if options.json:
        record = {
            "scores": result.scores,
            "attention": result.attention,
            "attention_on": result.attention_on,
            "signature": result.signature,
            "folder": str(folder),
        }
        sys.stdout.write(json.dumps(record, indent=1) + "\n")
        return 0
    print_result(result.scores, result.attention, result.attention_on)
    sys.stdout.write(f"{result.signature}\n{folder}\n")
    return 0


def parser() -> Parser:
    """The options of the command."""
    made = Parser(prog="regmax evaluate", description=_ABOUT)
    made.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    files = "a source file and its references, or one JSON-lines file (the run's test set)"
    made.add_argument("--test", nargs="+", default=(), metavar="FILE", help=files)
    made.add_argument(
        "--masks", default="", metavar="FILE", help="file of keep-masks for these sources (none)"
    )
    beam = "beam size (the run's)"
    made.add_argument("--beam", type=positive, metavar="N", help=beam)
    where = "output folder (RUN/evaluations/NAME)"
    made.add_argument("--out", type=Path, metavar="FOLDER", help=where)
    made.add_argument("--json", action="store_true", help="print JSON")
    return made
