"""The picture of the cliffs: settings in rows, kinds of scores in columns, the worst ratio over all lengths."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from regmax.bench.cliffs import ROWS, STEPS, Cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Lightness decreases throughout, for colour-blind readers and greyscale prints; text on the last two is white.
_COLOURS = ("#eef4fa", "#fdf0c8", "#fbc47c", "#d9602b", "#7d1717")
_WHITE_FROM = 3


def heat_map(cells: Sequence[Cell]) -> Figure:
    """One panel per direction of these cells, which are all rows or all attention."""
    settings, kinds, runs = (
        list(dict.fromkeys(getattr(cell, name) for cell in cells)) for name in ("setting", "kind", "run")
    )
    across = 0.74 * len(kinds) * len(runs)
    figure = Figure(figsize=(2.6 + max(4.0, across), 1.4 + 0.27 * len(settings)), layout="constrained")
    grid = figure.subplots(1, len(runs), sharey=True, squeeze=False).ravel().tolist()
    steps = STEPS[cells[0].of]
    for axes, run in zip(grid, runs, strict=True):
        _panel(axes, _worst([cell for cell in cells if cell.run == run], settings, kinds), steps)
        axes.set_title(run.replace("+", " + "), fontsize=11)
        axes.set_xticks(range(len(kinds)), kinds, fontsize=9)
        axes.set_yticks(range(len(settings)), settings, fontsize=9)
        _lines_between_mappings(axes, settings)
    _legend(figure, cells, steps)
    return figure


def _worst(cells: Sequence[Cell], settings: Sequence[str], kinds: Sequence[str]) -> NDArray[np.float64]:
    """The largest ratio over all lengths, (settings, kinds); NaN if nothing was measured."""
    ratios = np.full((len(settings), len(kinds)), np.nan)
    for cell in cells:
        at = settings.index(cell.setting), kinds.index(cell.kind)
        ratios[at] = np.fmax(ratios[at], cell.ratio)
    return ratios


def _panel(axes: "Axes", ratios: NDArray[np.float64], steps: Sequence[float]) -> None:
    colours = _COLOURS[-len(steps) - 1 :]
    colour = np.searchsorted(steps, ratios).astype(float)
    colour[np.isnan(ratios)] = np.nan
    axes.imshow(colour, cmap=ListedColormap(colours), vmin=-0.5, vmax=len(steps) + 0.5, aspect="auto")
    for (i, j), ratio in np.ndenumerate(ratios):
        if not np.isnan(ratio):
            text = f"{ratio:.0f}" if ratio >= 9.95 else f"{ratio:.1f}"
            white = colour[i, j] + len(_COLOURS) - len(colours) >= _WHITE_FROM
            ink = "white" if white else "black"
            axes.text(j, i, text, ha="center", va="center", fontsize=8.5, color=ink)


def _lines_between_mappings(axes: "Axes", settings: Sequence[str]) -> None:
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    mappings = [setting.partition(",")[0] for setting in settings]
    for i, (above, below) in enumerate(pairwise(mappings)):
        if above != below:
            axes.axhline(i + 0.5, color="black", lw=0.8)


def _legend(figure: Figure, cells: Sequence[Cell], steps: Sequence[float]) -> None:
    between = (f"{low:g} to {high:g}" for low, high in pairwise(steps))
    bounds = [f"up to {steps[0]:g}", *between, f"above {steps[-1]:g}"]
    colours = _COLOURS[-len(steps) - 1 :]
    patches = [
        Patch(facecolor=colour, edgecolor="#999999", label=label)
        for colour, label in zip(colours, bounds, strict=True)
    ]
    baseline = "softmax" if cells[0].of == ROWS else "softmax attention"
    lengths = ", ".join(f"{d:,}" for d in sorted({cell.d for cell in cells}))
    title = f"time / {baseline}'s, the worst of d = {lengths}"
    figure.legend(
        handles=patches,
        title=title,
        loc="outside upper center",
        ncols=len(patches),
        frameon=False,
        fontsize=9,
    )
