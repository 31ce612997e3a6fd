"""Attention weights as heat maps, in the convention of the paper's Figures 1, 3 and 4.

Exact zeros are grey. A segment is one rectangle, so there is no border between its exactly equal weights. The members
of an oscarmax cluster carry the same bullet. Deleted positions (NaN) are blank.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regmax.plots import colours
from regmax.plots.cells import Run, clusters, runs
from regmax.plots.figures import array, figure_of, new_figure
from regmax.plots.labels import label_columns, label_rows
from regmax.plots.scale import share_scale
from regmax.plots.text import fonts_for, is_right_to_left, readable, with_boxes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BULLETS = "oDs^"  # filled, then hollow: eight clusters per row before a bullet repeats
_CELL = 0.3  # inches
_WIDEST = 24.0  # inches: longer sentences get narrower cells
_MANY = 20_000  # rectangles; with more, a vector file would be too large


@dataclass(frozen=True)
class Panel:
    """One of several heat maps over the same source: weights (target, source), and the target words.

    Example:
        >>> import numpy as np
        >>> Panel(np.array([[0.5, 0.5, 0.0]]), ["Hund"], title="fusedmax").title
        'fusedmax'
    """

    weights: Any
    target_tokens: Sequence[str]
    title: str = ""
    clustered: bool | Sequence[bool] = (
        False  # mark exactly equal weights by bullets, in all rows or some: for oscarmax
    )


def attention_heatmap(
    weights: Any,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    *,
    title: str = "",
    clustered: bool | Sequence[bool] = False,
    annotate: bool = False,
    largest: float | None = None,
    right_to_left: bool | None = None,
    ax: "Axes | None" = None,
) -> "Figure":
    """Draw attention weights: one row per target token, one column per source token.

    Args:
        weights: array or tensor (target, source); NaN marks masked positions.
        source_tokens: the columns' labels; subwords are recognised by their vocabulary's marks.
        target_tokens: the rows' labels.
        title: the title above the heat map.
        clustered: mark the clusters of a row by distinct bullets, for oscarmax: in all rows, or in those that a list of
            booleans selects.
        annotate: write the numbers, one per rectangle, except for weights with a bullet.
        largest: the weight of the darkest colour; by default the largest weight of the figure.
        right_to_left: whether the source runs from right to left; by default decided by its first letter.
        ax: axes to draw into, e.g. of `plt.subplots`; by default those of a new figure. All heat maps of a figure have
            one scale and one colour bar, and a figure without a layout engine gets the constrained layout, so that no
            label is cut.

    Returns:
        The figure: `figure.savefig("attention.pdf")`.

    Example:
        >>> import numpy as np, regmax
        >>> y = regmax.fusedmax(np.array([[1.0, 0.9, 0.6], [0.0, 0.1, 2.0]]))
        >>> figure = attention_heatmap(y, ["a", "b", "c"], ["d", "e"])
        >>> figure.savefig("attention.pdf")  # doctest: +SKIP
    """
    panel = Panel(weights, target_tokens, title, clustered)
    if ax is None:
        return attention_panels(
            [panel], source_tokens, annotate=annotate, largest=largest, right_to_left=right_to_left
        )
    panel = _checked(panel, source_tokens)
    figure = figure_of(ax)
    if figure.get_layout_engine() is None:
        figure.set_layout_engine("constrained")
    _draw(ax, panel, source_tokens, largest or _largest([panel]), annotate, right_to_left)
    share_scale(figure, largest)
    return figure


def attention_panels(
    panels: Sequence[Panel],
    source_tokens: Sequence[str],
    *,
    columns: int | None = None,
    annotate: bool = False,
    largest: float | None = None,
    right_to_left: bool | None = None,
) -> "Figure":
    """Draw several heat maps over one source on one scale, side by side, for example one per mapping.

    Args:
        panels: the heat maps; each has its own target tokens, because different models write different sentences.
        source_tokens: the columns' labels.
        columns: how many are side by side; by default as many as fit on a page.
        annotate: write the numbers, one per rectangle, except for weights with a bullet.
        largest: the weight of the darkest colour; by default the largest weight.
        right_to_left: whether the source runs from right to left; by default decided by its first letter.

    Returns:
        The figure.

    Example:
        >>> import numpy as np
        >>> from regmax.plots import Panel, Setting, attention_panels
        >>> x = np.array([[1.0, 0.9, 0.6]])
        >>> settings = [Setting("softmax"), Setting("fusedmax")]
        >>> panels = [Panel(setting(x), ["d"], setting.label) for setting in settings]
        >>> [axes.get_title() for axes in attention_panels(panels, ["a", "b", "c"]).axes[:2]]
        ['softmax', 'fusedmax, λ = 0.1']
    """
    if not panels:
        raise ValueError("`attention_panels(panels, ...)` needs at least one panel.")
    panels = [_checked(panel, source_tokens) for panel in panels]
    width = min(_CELL * max(len(source_tokens), 5), _WIDEST)
    columns = columns or max(1, min(len(panels), int(18 // (width + 1))))
    figure, grid = _grid(panels, width, columns)
    scale = largest or _largest(panels)
    for k, (ax, panel) in enumerate(zip(grid, panels, strict=True)):
        _draw(ax, panel, source_tokens, scale, annotate, right_to_left)
        # Identical row labels are not repeated.
        if k % columns and list(panel.target_tokens) == list(panels[k - 1].target_tokens):
            ax.tick_params(axis="y", labelleft=False)
    share_scale(figure, scale)
    return figure


def _grid(panels: Sequence[Panel], width: float, columns: int) -> "tuple[Figure, list[Axes]]":
    """A figure with one axes per panel, in rows of `columns`, with square cells if there is room."""
    rows = [panels[k : k + columns] for k in range(0, len(panels), columns)]
    cell = min(max(width / max(len(panels[0].weights[0]), 1), 0.2), _CELL)
    heights = [max(cell * max(len(panel.target_tokens) for panel in row), 0.35) for row in rows]
    figure = new_figure(columns * (width + 1.1) + 0.6, sum(heights) + 1.15 * len(rows))
    grid = figure.add_gridspec(len(rows), columns, height_ratios=heights)
    return figure, [figure.add_subplot(grid[k // columns, k % columns]) for k in range(len(panels))]


def _checked(panel: Panel, source_tokens: Sequence[str]) -> Panel:
    weights = array(panel.weights)
    expected = (len(panel.target_tokens), len(source_tokens))
    if weights.shape != expected:
        raise ValueError(
            f"`weights` must have a row per target and a column per source token, {expected}. Got {weights.shape}."
        )
    if 0 in expected:
        raise ValueError("`attention_heatmap` needs at least one source and one target token.")
    return Panel(weights, panel.target_tokens, panel.title, panel.clustered)


def _largest(panels: Sequence[Panel]) -> float:
    return (
        max((float(np.nanmax(p.weights)) for p in panels if not np.isnan(p.weights).all()), default=0.0)
        or 1.0
    )


def _draw(
    ax: "Axes", panel: Panel, source: Sequence[str], scale: float, annotate: bool, right_to_left: bool | None
) -> None:
    source, target = readable(source), readable(panel.target_tokens)
    pieces = list(runs(panel.weights))
    ax.set_xlim(0, len(source))
    ax.set_ylim(len(target), 0)
    if is_right_to_left(source) if right_to_left is None else right_to_left:
        ax.invert_xaxis()
    _draw_runs(ax, pieces, scale)
    bullets = list(_bullets(panel))
    _draw_bullets(ax, panel.weights, bullets, scale)
    if annotate:
        taken = {(row, place) for row, _, places in bullets for place in places}
        _write_weights(ax, [run for run in pieces if (run.row, run.start) not in taken], scale)
    fonts = fonts_for([*source, *target, panel.title])
    label_columns(ax, with_boxes(source), np.nan_to_num(panel.weights).max(0), fonts)
    label_rows(ax, with_boxes(target), fonts)
    ax.set_title(with_boxes([panel.title])[0], fontsize=11, fontfamily=fonts)
    ax.spines[:].set_visible(False)


def _draw_runs(ax: "Axes", pieces: list[Run], scale: float) -> None:
    """One rectangle per range of equal weights: zeros in one collection, weights in another."""
    from matplotlib.collections import PolyCollection

    zeros = [_rectangle(run) for run in pieces if run.weight == 0]
    others = [run for run in pieces if run.weight != 0]
    style: dict[str, Any] = {"edgecolors": "white", "linewidths": 0.9, "rasterized": len(pieces) > _MANY}
    ax.add_collection(PolyCollection(zeros, facecolors=colours.ZERO, gid="zeros", **style))
    weights = PolyCollection(
        [_rectangle(run) for run in others], gid="weights", cmap=colours.weight_colours(), **style
    )
    weights.set_array(np.array([run.weight for run in others]))
    weights.set_clim(0, scale)
    ax.add_collection(weights)


def _rectangle(run: Run) -> list[tuple[float, float]]:
    top, bottom = run.row + 0.04, run.row + 0.96  # a gap: only neighbours within a row are fused
    return [(run.start, top), (run.stop, top), (run.stop, bottom), (run.start, bottom)]


def _bullets(panel: Panel) -> Iterator[tuple[int, int, list[int]]]:
    """The clusters of all rows: the row, the cluster's number in it, and its positions."""
    rows = [panel.clustered] * len(panel.weights) if isinstance(panel.clustered, bool) else panel.clustered
    for row, (clustered, y) in enumerate(zip(rows, panel.weights, strict=True)):
        if clustered:
            yield from ((row, number, places) for number, places in enumerate(clusters(y)))


def _draw_bullets(
    ax: "Axes", weights: NDArray[Any], bullets: list[tuple[int, int, list[int]]], scale: float
) -> None:
    size = 0.22 * min(ax.get_window_extent().width / weights.shape[1], 30)
    for row, number, places in bullets:
        weight = float(weights[row, places[0]])
        style = {
            "marker": _BULLETS[number // 2 % len(_BULLETS)],
            "markersize": size,
            "fillstyle": "none" if number % 2 else "full",
            "color": colours.text_colour(weight / scale),
        }
        heights = np.full(len(places), row + 0.5)
        (drawn,) = ax.plot(
            np.array(places) + 0.5, heights, linestyle="none", gid=f"cluster {row}.{number}", **style
        )
        colours.on_weight(drawn, weight)


def _write_weights(ax: "Axes", pieces: list[Run], scale: float) -> None:
    for run in pieces:
        if run.weight != 0:
            text = f"{run.weight:.2f}".removeprefix("0")
            place = ((run.start + run.stop) / 2, run.row + 0.5)
            colour = colours.text_colour(run.weight / scale)
            written = ax.text(*place, text, ha="center", va="center", fontsize=7, color=colour)
            colours.on_weight(written, run.weight)
