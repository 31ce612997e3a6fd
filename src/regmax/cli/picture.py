"""Rows of weights as heat maps under the scores they come from."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from regmax.cli.errors import CommandError
from regmax.cli.structure import Row, Weights
from regmax.plots import attention_heatmap

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(words: Sequence[str], x: Weights, rows: Sequence[Row], path: Path) -> None:
    """Write the scores and every mapping's weights to the PNG file `path`."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise CommandError("the picture needs matplotlib: `pip install 'regmax[plots]'`.") from None
    figure = Figure(figsize=(0.85 * len(words) + 1.8, 0.5 * len(rows) + 2.2), layout="constrained")
    scores, *strips = figure.subplots(len(rows) + 1, 1, height_ratios=[1.5, *[1] * len(rows)])
    _draw_scores(scores, x)
    largest = max(float(row.y.max()) for row in rows)
    for strip, row in zip(strips, rows, strict=True):
        attention_heatmap(
            row.y[None, :],
            words,
            [_label(row)],
            clustered=row.clustered,
            annotate=not row.clustered,  # the bullets of clusters stand where the numbers would
            largest=largest,
            ax=strip,
        )
    for strip in strips[1:]:  # the words stand once, between the scores and the weights
        strip.set_xticks([])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _draw_scores(axes: "Axes", x: Weights) -> None:
    axes.bar(np.arange(x.size) + 0.5, x, width=0.55, color="#8a8a8a")
    axes.axhline(0, color="#333333", linewidth=0.8)
    axes.set_xlim(0, x.size)
    axes.set_yticks([x.max() / 2], ["scores"])
    axes.set_xticks([])
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def _label(row: Row) -> str:
    return f"{row.name} {row.parameter}".replace("lam=", "λ = ").replace("p=", "p = ").strip()
