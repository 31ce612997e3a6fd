"""The paper's Figure 2 and the appendix's surfaces agree with the paper's statements."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d import Axes3D

import regmax
from regmax.mappings import MAPPINGS
from regmax.plots import mapping_curves, mapping_surfaces


@pytest.fixture(scope="module")
def curves() -> Figure:
    return mapping_curves()


def lines(ax: Axes) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {
        str(line.get_label()): (line.get_xdata(), line.get_ydata())
        for line in ax.lines
        if line.get_label()[0] != "_"
    }


def test_every_regularized_max_is_above_the_max_and_meets_it(curves: Figure) -> None:
    drawn = lines(curves.axes[0])
    t, largest = drawn.pop("max")
    expected = ["softmax", "sparsemax", "fusedmax, λ = 0.2", "sqpnormmax, p = 1.5", "entmax, α = 1.5"]
    assert list(drawn) == expected
    for name, (_, values) in drawn.items():
        assert np.all(values >= largest - 1e-12)
        assert (abs(values[0] - largest[0]) < 1e-12) == (name != "softmax")
    np.testing.assert_allclose(drawn["softmax"][1], np.logaddexp(t, 0))


def test_all_mappings_but_softmax_reach_zero_and_one(curves: Figure) -> None:
    for name, (t, y) in lines(curves.axes[1]).items():
        assert (y[0] == 0 and y[-1] == 1) == (name != "softmax")
        np.testing.assert_allclose(y + y[::-1], 1, atol=1e-12)
        plateau = np.count_nonzero((y == 0.5) & (t != 0)) > 0
        assert plateau == name.startswith("fusedmax")


def test_the_inset_shows_where_the_transitions_differ(curves: Figure) -> None:
    (inset,) = curves.axes[1].child_axes
    low, high = inset.get_xlim()
    assert low < -1 < high
    assert len(lines(inset)) == 5


def test_curves_are_drawn_into_given_axes() -> None:
    figure = Figure()
    axes = figure.subplots(1, 2)
    assert mapping_curves({"mine": regmax.SquaredPNorm(p=1.2)}, axes=axes, gamma=2.0) is figure
    assert set(lines(axes[1])) == {"mine, p = 1.2, γ = 2"}


def test_surfaces_are_those_of_the_five_mappings(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    monkeypatch.setattr(Axes3D, "plot_surface", lambda axes, t1, t2, y, **style: drawn.append((t1, t2, y)))
    figure = mapping_surfaces(points=9)
    titles = [ax.get_title() for ax in figure.axes]
    names = [title.split(",")[0] for title in titles]
    assert names == list(MAPPINGS)
    assert titles[2:4] == ["fusedmax, λ = 0.2", "oscarmax, λ = 0.2"]
    for name, (t1, t2, y) in zip(names, drawn, strict=True):
        strength = {"lam": 0.2} if name in ("fusedmax", "oscarmax") else {}
        expected = getattr(regmax, name)(np.array([t1[2, 7], t2[2, 7], 0.0]), **strength)[1]
        assert y[2, 7] == pytest.approx(expected)
