"""Create figures without pyplot, so that no global state changes, and read arrays of any kind."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> "Figure":
    """A figure outside pyplot's list of figures, with a layout in which its parts do not overlap."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("a figure needs matplotlib: `pip install 'regmax[plots]'`.") from None
    return Figure(figsize=(width, height), layout="constrained")


def figure_of(axes: "Axes") -> "Figure":
    """The figure that axes belong to, also if they are in a subfigure."""
    return axes.figure.figure


def array(weights: Any) -> NDArray[np.float64]:
    """Weights as float64: an exact conversion, which keeps zeros and ties."""
    if hasattr(weights, "detach"):
        weights = weights.detach().cpu().double().numpy()
    return np.asarray(weights, np.float64)
