"""One scale and one colour bar for all heat maps of a figure."""

from typing import TYPE_CHECKING, Any

import numpy as np

from regmax.plots import colours

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BAR = "regmax colour bar"  # the label of its axes, by which it is found again
_LOW = 2.5  # inches: a figure of one or two rows


def share_scale(figure: "Figure", largest: float | None) -> None:
    """Give the heat maps of a figure the scale from 0 to `largest`, by default to their largest weight.

    The colour bar is made again, because a further heat map may have been drawn.
    """
    maps = [(ax, one) for ax in figure.axes for one in ax.collections if one.get_gid() == "weights"]
    drawn = [weights for _, one in maps if (weights := np.asarray(one.get_array())).size]
    scale = largest or max((float(weights.max()) for weights in drawn), default=1.0)
    for ax, one in maps:
        one.set_clim(0, scale)
        for artist in (*ax.lines, *ax.texts):
            colours.recolour(artist, scale)
    for old in [ax for ax in figure.axes if ax.get_label() == _BAR]:
        old._colorbar.remove()  # type: ignore[attr-defined]  # gives the room back
    bar = figure.colorbar(
        maps[-1][1], ax=[ax for ax, _ in maps], shrink=0.6, pad=0.01, aspect=18, anchor=(0, 0)
    )
    name_bar(bar)


def name_bar(bar: Any) -> None:
    """The style of every colour bar of weights."""
    # The bar of a map with one row is shorter than its name, which then starts at the bar's lower end.
    low = bar.ax.figure.get_figheight() < _LOW
    bar.set_label("attention weight", fontsize=9, loc="bottom" if low else "center")
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, length=0)
    bar.ax.set_label(_BAR)
