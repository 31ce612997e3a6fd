"""`regmax demo`: one sentence, its attention scores, and what each mapping makes of them."""

import argparse
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np

import regmax
from regmax.cli import picture, terminal
from regmax.cli.errors import CommandError
from regmax.cli.structure import Row
from regmax.regularizers import KernelRegularizer

# What a model might score each word with. The words of a phrase score alike: softmax keeps every word,
# sparsemax weighs a phrase unevenly, fusedmax keeps it whole, and oscarmax gives words that score alike one
# weight, wherever they are.
SENTENCE = "the old lighthouse keeper has not seen a single ship since early spring ."
SCORES = np.array([0.95, 1.32, 1.43, 1.38, 0.45, 0.58, 0.88, 0.60, 1.30, 1.41, 0.31, 1.12, 1.14, -0.60])

MAPPINGS: dict[str, KernelRegularizer] = {
    "softmax": regmax.NegativeEntropy(),
    "sparsemax": regmax.SquaredNorm(),
    "fusedmax": regmax.FusedLasso(lam=0.1),
    "oscarmax": regmax.Oscar(lam=0.03),
    "sqpnormmax": regmax.SquaredPNorm(p=1.5),
}

# What rounding explains in sums of a dozen numbers of size one.
ROUNDING = 32 * float(np.finfo(np.float64).eps)


def run(arguments: Sequence[str]) -> int:
    """Print the table, write the picture and name it; 1 where a mapping is not optimal up to rounding."""
    options = _parser().parse_args(arguments)
    words = SENTENCE.split()
    rows = [row(name, omega) for name, omega in MAPPINGS.items()]
    terminal.show(words, SCORES, rows)
    worst = max(rows, key=lambda row: row.gap)
    if not worst.gap <= ROUNDING:
        raise CommandError(f"{worst.name} is not optimal: its duality gap is {worst.gap:.1e}.")
    print(f"No duality gap exceeds {ROUNDING:.1e}, the size of rounding.")
    path = options.out / "mappings.png"
    picture.draw(words, SCORES, rows, path)
    print(path)
    return 0


def row(name: str, omega: KernelRegularizer) -> Row:
    """The example's weights under one regularizer."""
    y = regmax.regularized_argmax(omega, SCORES)
    gap = abs(float(regmax.duality_gap(omega, SCORES, y)))
    return Row(name, _parameter(omega), y, gap, clustered=isinstance(omega, regmax.Oscar))


def _parameter(omega: KernelRegularizer) -> str:
    return ", ".join(f"{field.name}={getattr(omega, field.name)}" for field in fields(omega))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="regmax demo", description="One sentence under every mapping.")
    where = "the folder that the picture goes to (%(default)s)"
    parser.add_argument("--out", type=Path, default=Path("regmax-demo"), metavar="FOLDER", help=where)
    return parser
