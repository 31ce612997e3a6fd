"""fusedmax's screening: scores that are pruned have no weight, at the borders of words and of rows too."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from fronts import TIERS, forced_tier

from regmax.kernels import native, reference


def rows(d: int, seed: int) -> np.ndarray:
    """Peaks with plateaus just below them, of all lengths and at all places, over low scores."""
    rng = np.random.default_rng(seed)
    x = -3 + 0.1 * rng.normal(size=(60, d))
    for row in x:
        for _ in range(rng.integers(1, 4)):
            start, length = rng.integers(0, d), rng.integers(1, 9)
            row[start : start + length] = 1 - rng.uniform(0.1, 0.5) + 0.02 * rng.normal()
            row[rng.integers(max(0, start - 1), min(d, start + 2))] = 1 + 0.1 * rng.normal()
            row[min(d - 1, start + length)] = 1 + 0.1 * rng.normal()
    return x


@cache
def expected_rows(d: int, lam: float) -> tuple[np.ndarray, np.ndarray]:
    x = rows(d, d)
    return x, reference.argmax("fusedmax", x, theta=lam)


@pytest.mark.pairs
@pytest.mark.parametrize("tier", [None, *TIERS])
@pytest.mark.parametrize("d", [3, 20, 64, 65, 128, 130, 300])
@pytest.mark.parametrize("lam", [0.02, 0.1, 0.3])
def test_pruned_scores_have_no_weight(tier: str | None, d: int, lam: float) -> None:
    x, expected = expected_rows(d, lam)
    with forced_tier(tier):
        y = native.argmax("fusedmax", x, theta=lam)
        half = native.argmax("fusedmax", x.astype(np.float32), theta=lam)
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(half, expected, rtol=0, atol=2e-6)


@cache
def lone_rows(d: int, lam: float) -> tuple[np.ndarray, np.ndarray]:
    """A peak, and scores at all heights around its threshold without others beside them, at borders of words, too."""
    x = []
    for place in sorted({0, 1, 2, d // 2, 62, 63, 64, 65, 127, 128, d - 2, d - 1} & set(range(d))):
        for height in np.arange(-4, 3.5, 0.5):
            row = np.full(d, -3.0)
            row[(place + 5) % d] = 1
            row[place] = lam * height
            x.append(row)
    rows = np.array(x)
    return rows, reference.argmax("fusedmax", rows, theta=lam)


@pytest.mark.pairs
@pytest.mark.parametrize("tier", [None, *TIERS])
@pytest.mark.parametrize("d", [9, 64, 65, 130, 600])
@pytest.mark.parametrize("lam", [0.02, 0.1, 0.3])
def test_lone_scores_have_weight_above_their_own_threshold(tier: str | None, d: int, lam: float) -> None:
    x, expected = lone_rows(d, lam)
    assert ((expected > 0).sum(axis=1) == 2).any()
    with forced_tier(tier):
        y = native.argmax("fusedmax", x, theta=lam)
        half = native.argmax("fusedmax", x.astype(np.float32), theta=lam)
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(half, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("tier", [None, *TIERS])
def test_a_deleted_score_hides_no_neighbour(tier: str | None) -> None:
    """Scores of -inf between a plateau's parts: their neighbours are adjacent."""
    rng = np.random.default_rng(0)
    x = rows(128, 9)
    deleted = rng.random(x.shape) < 0.3
    deleted[:, 0] = False
    x[deleted] = -np.inf
    with forced_tier(tier):
        y = native.argmax("fusedmax", x, theta=0.1)
    np.testing.assert_allclose(y, reference.argmax("fusedmax", x, theta=0.1), rtol=0, atol=1e-12)


@cache
def divided_rows(kernel: str, theta: float | None, gamma: float, d: int) -> tuple[Any, ...]:
    """Rows with their weights at one gamma, and at one per row."""
    x = np.random.default_rng(d).normal(size=(17, d))
    x[3, 2] = -np.inf
    x[5] = 1.0
    strengths = gamma, gamma * np.linspace(0.5, 1.5, 17)
    return x, *((own, reference.argmax(kernel, x, theta=theta, gamma=own)) for own in strengths)


@pytest.mark.pairs
@pytest.mark.parametrize("kernel", ["sparsemax", "fusedmax", "oscarmax", "sqpnormmax"])
@pytest.mark.parametrize("tier", [None, *TIERS])
@pytest.mark.parametrize("gamma", [1e-35, 1e-3, 2.0, 1e3, 1e33])
@pytest.mark.parametrize("d", [6, 130])
def test_gamma_divides_the_scores_on_every_tier(kernel: str, tier: str | None, gamma: float, d: int) -> None:
    """Also beyond the range in which the fast tiers divide."""
    theta = {"fusedmax": 0.1, "oscarmax": 0.5 / d, "sqpnormmax": 1.5}.get(kernel)
    x, *cases = divided_rows(kernel, theta, gamma, d)
    for own, expected in cases:
        with forced_tier(tier):
            y = native.argmax(kernel, x, theta=theta, gamma=own)
            half = native.argmax(kernel, x.astype(np.float32), theta=theta, gamma=own)
        np.testing.assert_allclose(y, expected, rtol=0, atol=1e-11)
        # The scores' own rounding, divided by gamma, decides between nearly equal ones.
        np.testing.assert_allclose(half, expected, rtol=0, atol=5e-6 if gamma >= 0.5 else 1e-3)
