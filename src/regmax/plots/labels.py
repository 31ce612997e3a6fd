"""Tokens as tick labels: as large as fits, slanted if long, and only the important ones if there are too many."""

import math
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regmax.plots.figures import figure_of
from regmax.plots.text import isolated, shortened, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LARGEST, _SMALLEST = 10.0, 5.5  # points


def label_columns(axes: "Axes", tokens: Sequence[str], importance: NDArray[Any], fonts: list[str]) -> None:
    """Write the source tokens above the columns."""
    step = _points(axes)[0] / len(tokens)
    size = _size(step)
    shown = _chosen(importance, math.ceil(1.15 * size / step))
    upright = len(shown) == len(tokens) and max(map(_width, tokens)) * size <= 0.95 * step
    slant: dict[str, Any] = {} if upright else {"rotation": 45, "ha": "left", "rotation_mode": "anchor"}
    texts = [isolated(shortened(visible(tokens[j]))) for j in shown]
    axes.set_xticks(np.asarray(shown) + 0.5, texts, fontsize=size, fontfamily=fonts, **slant)
    axes.tick_params(axis="x", length=0, pad=2, top=True, labeltop=True, bottom=False, labelbottom=False)


def label_rows(axes: "Axes", tokens: Sequence[str], fonts: list[str]) -> None:
    """Write the target tokens next to the rows."""
    step = _points(axes)[1] / len(tokens)
    size = _size(step)
    shown = range(0, len(tokens), math.ceil(1.15 * size / step))
    texts = [isolated(shortened(visible(tokens[i]))) for i in shown]
    axes.set_yticks(np.asarray(shown) + 0.5, texts, fontsize=size, fontfamily=fonts)
    axes.tick_params(axis="y", length=0, pad=3)


def _points(axes: "Axes") -> tuple[float, float]:
    """The axes' width and height."""
    box = axes.get_window_extent()
    scale = 72 / figure_of(axes).dpi
    return box.width * scale, box.height * scale


def _size(step: float) -> float:
    return min(max(0.62 * step, _SMALLEST), _LARGEST)


def _chosen(importance: NDArray[Any], apart: int) -> list[int]:
    """All positions, or the most important ones that lie at least `apart` from each other."""
    if apart <= 1:
        return list(range(len(importance)))
    chosen: list[int] = []
    for j in np.argsort(-importance, kind="stable").tolist():
        if all(abs(j - other) >= apart for other in chosen):
            chosen.append(j)
    return sorted(chosen)


def _width(token: str) -> float:
    """The approximate width of a token in multiples of the font size."""
    return sum(1.05 if unicodedata.east_asian_width(letter) in "WF" else 0.62 for letter in shortened(token))
