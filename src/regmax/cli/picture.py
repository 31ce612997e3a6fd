"""One sentence as a picture: its scores as bars, and below them one row of weights per mapping."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from regmax.cli.structure import Row, Weights
from regmax.plots import Setting, attention_heatmap
from regmax.plots.figures import new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(words: Sequence[str], x: Weights, rows: Sequence[Row], path: Path) -> None:
    """Write the scores and every mapping's weights to the PNG file `path`."""
    figure = new_figure(0.85 * len(words) + 1.8, 0.5 * len(rows) + 1.9)
    scores, weights = figure.subplots(2, 1, height_ratios=[1, 0.42 * len(rows)])
    _draw_scores(scores, x)
    attention_heatmap(
        np.stack([row.y for row in rows]),
        words,
        [Setting.parse(row.setting).label for row in rows],
        clustered=[row.clustered for row in rows],
        annotate=True,
        ax=weights,
    )
    save_figure(figure, path, dpi=150)


def _draw_scores(axes: "Axes", x: Weights) -> None:
    axes.bar(np.arange(x.size) + 0.5, x, width=0.55, color="#8a8a8a")
    axes.axhline(0, color="#333333", linewidth=0.8)
    axes.set_xlim(0, x.size)
    axes.set_yticks([x.max() / 2], ["scores"])
    axes.set_xticks([])
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
