"""The paper's Figure 2: max_Omega and Pi_Omega in two dimensions, as functions of one score."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regmax.functional import regularized_argmax, regularized_max
from regmax.mappings import at
from regmax.plots.colours import INK, LINES
from regmax.plots.figures import figure_of, new_figure
from regmax.plots.settings import titled
from regmax.regularizers import Regularizer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ZOOM = ((-1.35, -0.55), (-0.012, 0.16))  # the region in which sqpnormmax and sparsemax reach zero
STRENGTHS = {"fusedmax": 0.2}  # the others are at their defaults
WITHOUT = ("oscarmax",)  # in two dimensions it is fusedmax


def mapping_curves(
    omegas: "Mapping[str, Regularizer] | None" = None,
    *,
    gamma: float = 1.0,
    reach: float = 2.5,
    axes: "Sequence[Axes] | None" = None,
) -> "Figure":
    r"""Draw max_Omega([t, 0]) and Pi_Omega([t, 0])_1 over t, like the paper's Figure 2.

    max_Omega is shown up to a constant, gamma Omega(1, 0): every curve is then at least the maximum, and equals it if
    the weights are one and zero. oscarmax is omitted because it equals fusedmax in two dimensions.

    Args:
        omegas: regularizers by the name of their mapping; by default every mapping but oscarmax.
        gamma: the strength of the regularizer.
        reach: t runs from -reach to reach.
        axes: two axes to draw into; by default those of a new figure.

    Returns:
        The figure.

    Example:
        >>> [axes.get_title() for axes in mapping_curves().axes[:2]]
        ['$\\mathrm{max}_\\Omega([t, 0])$ + const', '$\\Pi_\\Omega([t, 0])_1$']
    """
    omegas = at(STRENGTHS, without=WITHOUT) if omegas is None else omegas
    if axes is None:
        left, right = new_figure(9.5, 3.6).subplots(1, 2)
    else:
        left, right = axes
    t = np.linspace(-reach, reach, 1001)
    x = np.stack([t, np.zeros_like(t)], axis=1)
    left.plot(t, np.maximum(t, 0), color="#999999", linewidth=1, label="max")
    inset = right.inset_axes((0.04, 0.6, 0.38, 0.38))
    for number, (name, omega) in enumerate(omegas.items()):
        style = _style(name, number) | {"label": titled(name, omega, gamma)}
        left.plot(t, _lifted_max(omega, x, gamma), **style)
        y = regularized_argmax(omega, x, gamma=gamma)[:, 0]
        for part in (right, inset):
            part.plot(t, y, **style)
    _finish(left, r"$\mathrm{max}_\Omega([t, 0])$ + const")
    _finish(right, r"$\Pi_\Omega([t, 0])_1$")
    _zoom(right, inset, gamma)
    left.legend(frameon=False, fontsize=9, handlelength=2.6)
    return figure_of(left)


def _lifted_max(omega: Regularizer, x: NDArray[Any], gamma: float) -> NDArray[Any]:
    """max_Omega plus gamma Omega at a vertex of the simplex."""
    corner = omega.value(np.array([1.0, 0.0]))
    return np.asarray(regularized_max(omega, x, gamma=gamma) + gamma * corner)


def _style(name: str, number: int) -> dict[str, Any]:
    """A mapping's colour and dashes; for other names, the next of a cycle."""
    colour, dashes = LINES.get(name, (f"C{number}", "solid"))
    return {"color": colour, "linestyle": dashes, "linewidth": 1.7}


def _finish(axes: "Axes", title: str) -> None:
    axes.set_title(title, fontsize=11)
    axes.set_xlabel("$t$")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9, colors=INK)


def _zoom(axes: "Axes", inset: "Axes", gamma: float) -> None:
    (low, high), heights = _ZOOM
    inset.set_xlim(low * gamma, high * gamma)
    inset.set_ylim(*heights)
    inset.tick_params(left=False, bottom=False, labelleft=False, labelbottom=False)
    inset.axhline(0, color="#bbbbbb", linewidth=0.8, zorder=0)
    axes.indicate_inset_zoom(inset, edgecolor="#777777")
