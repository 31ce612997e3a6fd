"""The colours of the figures: those of the page, in its light palette.

Weights differ only in lightness, and zero is lighter than any weight, so colour-blind readers and greyscale prints lose
nothing.
"""

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from regmax.plots.explorer import palette

if TYPE_CHECKING:
    from matplotlib.colors import LinearSegmentedColormap

_LIGHT = palette()["light"]
INK: str = _LIGHT["ink"]
ZERO: str = _LIGHT["zero"]
ON_LOW: str = _LIGHT["onLow"]
ON_HIGH: str = _LIGHT["onHigh"]
TURN: float = _LIGHT["turn"]  # the share of the scale from which text on a cell is light

# Wong's eight colours (Nature Methods, 2011), which colour-blind readers can distinguish; lines also differ in dashes.
Dashes = str | tuple[int, tuple[float, ...]]
LINES: dict[str, tuple[str, Dashes]] = {
    "softmax": ("#000000", (0, (1, 1))),
    "sparsemax": ("#0072b2", (0, (5, 1.5))),
    "sqpnormmax": ("#009e73", (0, (5, 1.2, 1, 1.2))),
    "entmax": ("#56b4e9", (0, (7, 1.5))),
    "fusedmax": ("#d55e00", "solid"),
    "oscarmax": ("#cc79a7", (0, (3, 1, 1, 1, 1, 1))),
}
OTHER_LINE: tuple[str, Dashes] = ("#777777", "solid")  # a mapping without a choice above


def weight_colours() -> "LinearSegmentedColormap":
    """The colour map of weights; it is not registered with matplotlib."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("regmax", _LIGHT["ramp"])


def text_colour(share: float) -> str:
    """The colour of text on a cell whose weight is this share of the scale."""
    return ON_HIGH if share > TURN else ON_LOW


_weights: "WeakKeyDictionary[Any, float]" = (
    WeakKeyDictionary()
)  # of the cells that bullets and numbers are on


def on_weight(artist: Any, weight: float) -> None:
    """Note the weight of the cell that a bullet or a number is on, for `recolour`."""
    _weights[artist] = weight


def recolour(artist: Any, scale: float) -> None:
    """Keep a bullet or a number readable if the scale has changed."""
    if artist in _weights:
        artist.set_color(text_colour(_weights[artist] / scale))
