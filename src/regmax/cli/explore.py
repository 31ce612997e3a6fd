"""`regmax explore`: write a self-contained HTML page for exploring attention weights."""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from regmax.cli.errors import CommandError
from regmax.cli.experiments import one_line_errors, packages
from regmax.cli.parser import Parser
from regmax.plots import (
    Examples,
    Setting,
    compare_examples,
    demo_examples,
    model_examples,
    read_examples,
    run_examples,
    write_explorer,
    write_report,
)

_EPILOG = """\
examples:
  regmax explore                                     the sentences included in regmax
  regmax explore --run runs/softmax --run runs/fusedmax
                                                     models of the experiments, side by side
  regmax explore --json scores.json                  your own scores: docs/explorer-format.md
  regmax explore --model folder --text "A sentence." a transformers model in a local folder
"""


def run(arguments: Sequence[str]) -> int:
    """Write the page, and print its path."""
    options = parser().parse(arguments)
    try:
        if options.report:
            print(_report(options))
            return 0
        examples = _examples(options)
        start = [Setting.parse(text) for text in options.mapping or ()][:2]
        left, right = [*start, *examples.start[len(start) :]]
        examples = replace(examples, start=(left, right), title=options.title or examples.title)
        print(write_explorer(examples, options.out))
    except (ValueError, ImportError) as error:
        raise CommandError(str(error)) from None
    return 0


def _examples(options: Namespace) -> Examples:
    if options.model is not None:
        if not options.text:
            raise CommandError("--model needs a sentence: `--text 'A sentence.'`.")
        return _models(options.model, options.text)
    if options.text:
        raise CommandError("--text needs the model that reads it: `--model FOLDER`.")
    if options.run:
        return run_examples(options.run)
    return demo_examples() if options.json is None else read_examples(options.json)


def _models(folders: Sequence[Path], texts: Sequence[str]) -> Examples:
    """One model, or several side by side."""
    if len(folders) == 1:
        return model_examples(folders[0], texts)
    names = [folder.resolve().name for folder in folders]
    labels = [
        name if names.count(name) == 1 else str(folder) for name, folder in zip(names, folders, strict=True)
    ]
    if len(set(labels)) < len(labels):
        raise CommandError(f"--model must name different folders. Got {folders[0]} twice.")
    return compare_examples(
        {label: model_examples(folder, texts) for label, folder in zip(labels, folders, strict=True)}
    )


def _report(options: Namespace) -> Path:
    if not options.run:
        raise CommandError("--report needs runs to report on: `--run FOLDER`.")
    with packages():
        from regmax.experiments.tables import tables
    with one_line_errors():
        return write_report(options.run, options.out, tables=tables(options.run))


def parser() -> Parser:
    """The options of the command."""
    made = Parser(
        prog="regmax explore",
        description="Write a self-contained HTML page for exploring attention weights. It needs no network.",
        epilog=_EPILOG,
    )
    source = made.add_mutually_exclusive_group()
    source.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="JSON file of sentences and scores (docs/explorer-format.md)",
    )
    models = "folder of a transformers model; requires --text; repeat it to compare models"
    source.add_argument("--model", type=Path, action="append", metavar="FOLDER", help=models)
    folders = "folder of a finished run; repeat it to compare models"
    source.add_argument("--run", type=Path, action="append", metavar="FOLDER", help=folders)
    report = "add the runs' tables and learning curves above the explorer"
    made.add_argument("--report", action="store_true", help=report)
    made.add_argument(
        "--text", action="append", metavar="TEXT", help="a sentence for --model; may be repeated"
    )
    mapping = "initial mapping, e.g. fusedmax,lam=0.2; give it twice to set both panels"
    made.add_argument("--mapping", action="append", metavar="MAPPING", help=mapping)
    made.add_argument("--title", metavar="TEXT", help="title of the page")
    where = "output file (%(default)s)"
    made.add_argument("--out", type=Path, default=Path("regmax-explorer.html"), metavar="FILE", help=where)
    return made
