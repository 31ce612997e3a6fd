"""`duality_gap` is a certificate: from a dual point read off the weights, so that it can fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fronts import Front
from table import Entry

import regmax
from regmax.frontends import numpy as numpy_frontend
from regmax.frontends import torch as torch_frontend


class Tsallis(regmax.SmoothRegularizer):
    """Written by a user."""

    def value(self, y: torch.Tensor) -> torch.Tensor:
        """Of order 1.5."""
        return ((y**1.5).sum(-1) - 1) / 0.75


def scores(n: int = 40, d: int = 9) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, d))


def suboptimality(entry: Entry, front: Front, x: np.ndarray, y: np.ndarray, **options: Any) -> np.ndarray:
    """max_Omega(x) + gamma Omega(y) - <x, y>."""
    gamma = options.get("gamma", 1.0)
    top = front(lambda a, **o: regmax.regularized_max(entry.omega, a, **o), x, **options)
    return top + np.squeeze(gamma) * front(entry.omega.value, y) - (np.where(y > 0, x, 0) * y).sum(-1)


def test_it_bounds_the_suboptimality_of_any_weights(entry: Entry, front: Front) -> None:
    x, rng = scores(), np.random.default_rng(1)
    near = front(entry, x + 1e-3 * rng.normal(size=x.shape))
    for y in (rng.dirichlet(np.full(9, 0.3), size=40), near, np.eye(9)[np.arange(40) % 9]):
        gap = front(lambda a, b: regmax.duality_gap(entry.omega, a, b, gamma=0.7), x, y)
        assert np.all(gap >= suboptimality(entry, front, x, y, gamma=0.7) - 1e-12)


def test_weights_that_are_not_optimal_have_a_gap_even_if_the_library_made_them(
    entry: Entry, front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that is wrong cannot hide: the gap does not solve the problem with the same code."""
    x = scores() * (1 + 10 * entry.parameters.get("lam", 0) * 9)
    right = front(entry, x)
    wrong = np.roll(right, 1, axis=-1)

    for module, array in ((numpy_frontend, np.asarray), (torch_frontend, torch.tensor)):
        for name in ("mapping", "_argmax_rows"):
            monkeypatch.setattr(module, name, lambda *_, array=array: array(wrong))
    y = front(lambda a: regmax.regularized_argmax(entry.omega, a), x)
    np.testing.assert_array_equal(y, wrong)
    gap = front(lambda a, b: regmax.duality_gap(entry.omega, a, b), x, y)
    moved = np.abs(wrong - right).max(-1) > 0.1
    assert moved.any()
    assert np.all(gap[moved] > 1e-3)


def test_strengths_per_row_masks_and_dims(entry: Entry, front: Front) -> None:
    x, rng = scores(6, 9), np.random.default_rng(2)
    mask = rng.random(x.shape) < 0.7
    mask[:, 0] = True
    gamma = np.linspace(0.5, 2.0, 6)[:, None]
    omega: Any = type(entry.omega)
    strength = entry.omega.strength

    def made(front_array: Any) -> Any:
        if strength is None:
            return omega()
        values = np.linspace(1.2, 1.9, 6) if strength in ("p", "alpha") else np.linspace(0.0, 0.4, 6)
        return omega(front_array(values[:, None]))

    def at_argmax(a: Any, mask: Any, gamma: Any) -> Any:
        it = made(front.array)
        y = regmax.regularized_argmax(it, a, mask=mask, gamma=gamma)
        return regmax.duality_gap(it, a, y, mask=mask, gamma=gamma)

    np.testing.assert_allclose(front(at_argmax, x, mask=mask, gamma=gamma), 0, atol=1e-13)

    def one_row_at_a_time(a: Any, b: Any, mask: Any) -> Any:
        return regmax.duality_gap(entry.omega, a, b, 0, mask=mask, gamma=0.7)

    y = front(entry, x * 1.3, mask=mask)
    whole = front(one_row_at_a_time, x.T.copy(), y.T.copy(), mask=mask.T.copy())
    for i in range(6):
        kept = front(
            lambda a, b: regmax.duality_gap(entry.omega, a, b, gamma=0.7), x[i, mask[i]], y[i, mask[i]]
        )
        np.testing.assert_allclose(whole[i], kept, atol=1e-13)


def test_weights_off_the_simplex_have_an_infinite_gap(entry: Entry, front: Front) -> None:
    x = scores(3, 4)
    y = np.array([[0.5, 0.5, 0.5, 0.0], [1.5, -0.5, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]])
    gap = front(lambda a, b: regmax.duality_gap(entry.omega, a, b), x, y)
    assert np.isinf(gap[:2]).all()
    assert np.isfinite(gap[2])


def test_strange_rows(entry: Entry, front: Front) -> None:
    x = np.array([[1.0, np.nan, 0.0], [1.0, 0.0, np.inf], [-np.inf] * 3, [0.0, -np.inf, -1e308]])
    y = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0] * 3, [1.0, 0.0, 0.0]])
    gap = front(lambda a, b: regmax.duality_gap(entry.omega, a, b), x, y)
    assert np.isnan(gap[:2]).all()
    assert gap[2] == 0
    assert gap[3] == pytest.approx(0, abs=1e-15)


def test_half_precision_weights_are_judged_as_weights(entry: Entry) -> None:
    x = torch.tensor(scores()).bfloat16()
    gap = regmax.duality_gap(entry.omega, x, entry(x))
    assert gap.dtype == torch.bfloat16
    assert gap.abs().max() < 0.1


def test_a_smooth_regularizer_has_the_frank_wolfe_gap(front: Front) -> None:
    x, gamma = scores(), 0.6
    y = np.random.default_rng(3).dirichlet(np.ones(9), size=40)
    gap = front(lambda a, b: regmax.duality_gap(Tsallis(), a, b, gamma=gamma), x, y)
    slope = x - gamma * 2 * y**0.5
    np.testing.assert_allclose(gap, slope.max(-1) - (slope * y).sum(-1), rtol=1e-12)
    best = front(lambda a: regmax.regularized_argmax(Tsallis(), a, gamma=gamma), x)
    np.testing.assert_allclose(
        front(lambda a, b: regmax.duality_gap(Tsallis(), a, b, gamma=gamma), x, best), 0, atol=1e-11
    )


class Entropy(regmax.SmoothRegularizer):
    """Without a derivative at 0."""

    def value(self, y: torch.Tensor) -> torch.Tensor:
        """y log y, which is NaN at 0."""
        return (y * y.log()).sum(-1)


def test_a_corner_of_an_infinitely_steep_omega_is_not_optimal() -> None:
    x = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    assert regmax.duality_gap(Entropy(), x, torch.tensor([[1.0, 0.0]], dtype=torch.float64)) > 100
    y = regmax.softmax(x)
    assert regmax.duality_gap(Entropy(), x, y).abs() < 1e-12
