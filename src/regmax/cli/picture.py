"""Rows of weights as a heat map in the paper's convention.

Exact zeros are grey, and neighbours of exactly equal weight have no border between them: a fused phrase is
one cell.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regmax.cli.errors import CommandError
from regmax.cli.structure import Row, Weights, clusters, runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GREY, _INK = "#e4e4e4", "#333333"


def draw(words: Sequence[str], x: Weights, rows: Sequence[Row], path: Path) -> None:
    """Write the scores and every mapping's weights to the PNG file `path`."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise CommandError("the picture needs matplotlib: `pip install 'regmax[plots]'`.") from None
    figure = Figure(figsize=(0.78 * len(words) + 2.6, 0.62 * len(rows) + 1.7), layout="constrained")
    scores, weights = figure.subplots(2, 1, sharex=True, height_ratios=[1, len(rows) / 1.6])
    _draw_scores(scores, x)
    mesh = _draw_weights(weights, words, rows)
    figure.colorbar(mesh, ax=weights, label="weight", pad=0.01, aspect=14)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _draw_scores(axes: "Axes", x: Weights) -> None:
    axes.bar(np.arange(x.size) + 0.5, x, width=0.55, color="#8a8a8a")
    axes.axhline(0, color=_INK, linewidth=0.8)
    axes.set_ylabel("scores", rotation=0, ha="right", va="center", fontsize=11)
    axes.spines[:].set_visible(False)
    axes.tick_params(left=False, labelleft=False, bottom=False, labelbottom=False)


def _draw_weights(axes: "Axes", words: Sequence[str], rows: Sequence[Row]) -> Any:
    y = np.stack([row.y for row in rows])
    axes.set_facecolor(_GREY)
    mesh = axes.pcolormesh(np.ma.masked_equal(y, 0.0), cmap="Blues", vmin=0.0, vmax=y.max())
    for top, row in enumerate(rows):
        _draw_row(axes, top, row, dark=0.55 * y.max())
    axes.hlines(range(len(rows) + 1), 0, len(words), color="white", linewidth=6)
    axes.set_xticks(np.arange(len(words)) + 0.5, words, rotation=35, ha="right", rotation_mode="anchor")
    axes.set_yticks(np.arange(len(rows)) + 0.5, [_label(row) for row in rows])
    axes.invert_yaxis()
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=11)
    return mesh


def _label(row: Row) -> str:
    parameter = row.parameter.replace("lam", "λ")
    return f"{row.name}\n{parameter}" if parameter else row.name


def _draw_row(axes: "Axes", top: int, row: Row, dark: float) -> None:
    """The borders and numbers of one mapping: one number per run, so that a fused phrase reads as one."""
    letters = clusters(row.y) if row.clustered else [""] * row.y.size
    for start, stop in runs(row.y):
        axes.vlines((start, stop), top, top + 1, color="white", linewidth=1.6)
        weight = float(row.y[start])
        if weight == 0:
            continue
        colour = "white" if weight > dark else _INK
        times = f"{stop - start} × " if stop - start > 1 else ""
        text = times + f"{weight:.3f}".removeprefix("0")
        centre = (start + stop) / 2
        axes.text(centre, top + 0.5, text, ha="center", va="center", color=colour, fontsize=10)
        axes.text(stop - 0.18, top + 0.25, letters[start], ha="center", va="center", color=colour, fontsize=8)
