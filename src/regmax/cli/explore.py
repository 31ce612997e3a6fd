"""`regmax explore`: write one HTML file for exploring attention weights."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from regmax.cli.errors import CommandError
from regmax.plots import (
    Examples,
    Setting,
    demo_examples,
    model_examples,
    read_examples,
    run_examples,
    write_explorer,
    write_report,
)

_EPILOG = """\
examples:
  regmax explore                                     the sentences that come with regmax
  regmax explore --run runs/softmax --run runs/fusedmax
                                                     models of the experiments, side by side
  regmax explore --json scores.json                  your own: docs/explorer-format.md
  regmax explore --model folder --text "A sentence." a transformers model in a local folder
"""


def run(arguments: Sequence[str]) -> int:
    """Write the page, and print its path."""
    options = _parser().parse_args(arguments)
    try:
        if options.report:
            print(_report(options))
            return 0
        examples = _examples(options)
        start = [Setting.parse(text) for text in options.mapping or ()][:2]
    except (ValueError, ImportError) as error:
        raise CommandError(str(error)) from None
    left, right = [*start, *examples.start[len(start) :]]
    examples = replace(examples, start=(left, right), title=options.title or examples.title)
    print(write_explorer(examples, options.out))
    return 0


def _examples(options: argparse.Namespace) -> Examples:
    if options.model is not None:
        if not options.text:
            raise CommandError("--model needs a sentence: `--text 'A sentence.'`.")
        return model_examples(options.model, options.text)
    if options.text:
        raise CommandError("--text needs the model that reads it: `--model FOLDER`.")
    if options.run:
        return run_examples(options.run)
    return demo_examples() if options.json is None else read_examples(options.json)


def _report(options: argparse.Namespace) -> Path:
    if not options.run:
        raise CommandError("--report needs runs to report on: `--run FOLDER`.")
    try:
        from regmax.experiments.errors import ExperimentError
        from regmax.experiments.tables import tables
    except ModuleNotFoundError as error:
        raise CommandError(f"{error.name} is missing: `pip install 'regmax[experiments]'`.") from None
    try:
        return write_report(options.run, options.out, tables=tables(options.run))
    except ExperimentError as error:
        raise CommandError(str(error)) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="regmax explore",
        description="Write one HTML file, which needs no network, in which attention weights can be explored.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--json", type=Path, metavar="FILE", help="sentences and their scores")
    source.add_argument(
        "--model", type=Path, metavar="FOLDER", help="a local transformers model; needs --text"
    )
    folders = "the folder of a finished run; may be repeated, for models side by side"
    source.add_argument("--run", type=Path, action="append", metavar="FOLDER", help=folders)
    report = "put the runs' tables, learning curves and speeds above the explorer"
    parser.add_argument("--report", action="store_true", help=report)
    parser.add_argument(
        "--text", action="append", metavar="TEXT", help="a sentence for --model; may be repeated"
    )
    mapping = "a mapping to begin with, e.g. fusedmax,lam=0.2; twice for both sides"
    parser.add_argument("--mapping", action="append", metavar="MAPPING", help=mapping)
    parser.add_argument("--title", help="the page's title")
    where = "the page to write (%(default)s)"
    parser.add_argument("--out", type=Path, default=Path("regmax-explorer.html"), metavar="FILE", help=where)
    return parser
