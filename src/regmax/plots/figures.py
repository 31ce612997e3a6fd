"""Create figures without pyplot, so that no global state changes, and read arrays of any kind."""

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regmax.extras import how_to_install
from regmax.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> "Figure":
    """A figure outside pyplot's list of figures, with a layout in which its parts do not overlap."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(f"a figure needs matplotlib: {how_to_install('plots')}.") from None
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: "Figure", path: Path, *, dpi: int) -> Path:
    """Write a figure in the format that the file's name ends with, all of it or nothing."""
    content = BytesIO()
    figure.savefig(content, format=path.suffix.removeprefix("."), dpi=dpi)
    write_atomically(path, content.getvalue())
    return path


def figure_of(axes: "Axes") -> "Figure":
    """The figure that axes belong to, also if they are in a subfigure."""
    return axes.figure.figure


def array(weights: Any) -> NDArray[np.float64]:
    """Weights as float64: an exact conversion, which keeps zeros and ties.

    Sparse weights get their zeros. A record of `regmax.record_attention` must have one layer, sequence and head.
    """
    if isinstance(weights, Mapping):
        weights = _only(weights)
    if hasattr(weights, "starts"):  # SparseWeights
        weights = weights.to_dense()
    if hasattr(weights, "detach"):
        weights = weights.detach().cpu().double().numpy()
    return np.asarray(weights, np.float64)


def _only(record: Any) -> Any:
    """The matrix of weights in a record, if there is one only."""
    shapes = {name: tuple(calls[-1].shape) for name, calls in record.items()}
    if len(record) != 1 or any(size != 1 for shape in shapes.values() for size in shape[:-2]):
        raise ValueError(
            f"A heat map draws one matrix of weights. Got the record of {shapes}: choose with "
            "`record.dense(name)[batch, head]`."
        )
    (name,) = record
    return record.dense(name).reshape(shapes[name][-2:])
