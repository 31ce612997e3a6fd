"""The appendix's figure: Pi_Omega([t1, t2, 0])_2 as a surface over t1 and t2."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from regmax.functional import regularized_argmax
from regmax.mappings import at
from regmax.plots import colours
from regmax.plots.figures import new_figure
from regmax.plots.settings import titled
from regmax.regularizers import Regularizer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STRENGTHS = {"fusedmax": 0.2, "oscarmax": 0.2}  # the others are at their defaults


def mapping_surfaces(
    omegas: "Mapping[str, Regularizer] | None" = None,
    *,
    gamma: float = 1.0,
    reach: float = 2.5,
    points: int = 49,
) -> "Figure":
    """Draw Pi_Omega([t1, t2, 0])_2 in three dimensions, like the paper's appendix.

    On plateaus and ridges, weights are fused.

    Args:
        omegas: regularizers by the name of their mapping; by default every mapping, with lam = 0.2.
        gamma: the strength of the regularizer.
        reach: t1 and t2 run from -reach to reach.
        points: the number of points along each side of the grid.

    Returns:
        The figure.

    Example:
        >>> len(mapping_surfaces(points=11).axes)
        6
    """
    omegas = at(STRENGTHS) if omegas is None else omegas
    figure = new_figure(3.1 * len(omegas), 3.2)
    light = _light()  # from the side: plateaus, ridges and slopes differ in shade
    t = np.linspace(-reach, reach, points)
    t1, t2 = np.meshgrid(t, t)
    x = np.stack([t1, t2, np.zeros_like(t1)], axis=-1)
    for number, (name, omega) in enumerate(omegas.items(), start=1):
        axes: Any = figure.add_subplot(1, len(omegas), number, projection="3d")
        y = regularized_argmax(omega, x, gamma=gamma)[..., 1]
        shaded = light.shade(
            y, cmap=colours.weight_colours(), blend_mode="soft", vmin=0.0, vmax=1.0, vert_exag=0.35
        )
        axes.plot_surface(
            t1, t2, y, facecolors=shaded, rstride=1, cstride=1, linewidth=0.15, edgecolor="#ffffff60"
        )
        _finish(axes, titled(name, omega, gamma))
    return figure


def _light() -> Any:
    from matplotlib.colors import LightSource

    return LightSource(azdeg=300, altdeg=50)


def _finish(axes: Any, name: str) -> None:
    axes.set_title(name, fontsize=11, y=0.97)
    axes.set_xlabel("$t_1$", labelpad=-12)
    axes.set_ylabel("$t_2$", labelpad=-12)
    axes.set_zlim(0, 1)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_zticks([0, 0.5, 1])
    axes.tick_params(labelsize=7, pad=-3)
    axes.view_init(elev=28, azim=-120)
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis.set_pane_color((1.0, 1.0, 1.0, 0.0))
