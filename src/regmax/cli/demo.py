"""`regmax demo`: the weights of one sentence under each mapping, and a model trained with each."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np

import regmax
from regmax.cli import picture, terminal
from regmax.cli.errors import CommandError, InterruptError
from regmax.cli.experiments import one_line_errors
from regmax.cli.parser import Parser
from regmax.cli.structure import Row
from regmax.extras import how_to_install
from regmax.mappings import MAPPINGS, at
from regmax.regularizers import KernelRegularizer

# Plausible scores of a model. The words of a phrase have similar scores: softmax keeps every word, sparsemax weighs
# the words of a phrase unevenly, fusedmax makes the phrase one segment, and oscarmax gives words with similar scores
# one weight, adjacent or not.
SENTENCE = "the old lighthouse keeper has not seen a single ship since early spring ."
SCORES = np.array([0.95, 1.32, 1.43, 1.38, 0.45, 0.58, 0.88, 0.60, 1.30, 1.41, 0.31, 1.12, 1.14, -0.60])

STRENGTHS = {"oscarmax": 0.03}  # the others are at their defaults


def run(arguments: Sequence[str]) -> int:
    """Print the table, train, and print the report's path last; with `--quick`, only the table and its picture."""
    options = parser().parse(arguments)
    rows = [row(name, omega) for name, omega in at(STRENGTHS).items()]
    terminal.show(SENTENCE.split(), SCORES, rows)
    path = options.out / "mappings.png"
    try:
        picture.draw(SENTENCE.split(), SCORES, rows, path)
    except ImportError as error:
        raise CommandError(str(error)) from None
    print(path if options.quick else f"{path}\n", flush=True)
    if not options.quick:
        print(_train(options.out))
    return 0


def row(name: str, omega: KernelRegularizer) -> Row:
    """The example's weights under one regularizer."""
    y = regmax.regularized_argmax(omega, SCORES)
    gap = float(regmax.duality_gap(omega, SCORES, y))
    return Row(name, _parameter(omega), y, clustered=MAPPINGS[name].clusters, gap=gap)


def _parameter(omega: KernelRegularizer) -> str:
    return ", ".join(f"{field.name}={getattr(omega, field.name)}" for field in fields(omega))


def _train(out: Path) -> Path:
    try:
        from regmax.experiments import demo
    except ModuleNotFoundError as error:
        raise CommandError(
            f"training needs {error.name}: {how_to_install('experiments')}; `--quick` skips training."
        ) from None
    with one_line_errors():
        try:
            return demo.run(out)
        except KeyboardInterrupt:
            raise InterruptError("interrupted; run the same command again to continue.") from None


def parser() -> Parser:
    """The options of the command."""
    made = Parser(
        prog="regmax demo",
        description="Map one sentence with every mapping, then train a small translation model with each.",
    )
    made.add_argument("--quick", action="store_true", help="only map the sentence, without training")
    where = "output folder for the figure, the runs and the report (%(default)s)"
    made.add_argument("--out", type=Path, default=Path("regmax-demo"), metavar="FOLDER", help=where)
    return made
