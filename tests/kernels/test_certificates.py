"""oscarmax's lane tier decides rows from few candidates, and only if no score after them matters."""

from __future__ import annotations

import numpy as np
import pytest
from fronts import forced_tier

from regmax.kernels import native, reference


def rows_near_the_threshold(d: int, lam: float, gamma: float, seed: int) -> np.ndarray:
    """Top scores, and after them a range of ranks k with penalised scores x_(k) + lam k around the threshold.

    A certificate that misses one of them gives wrong weights; one that is too strict costs time only.
    """
    rng = np.random.default_rng([seed, d])
    rows = []
    for _ in range(120):
        top = int(rng.integers(2, 12))
        x = np.sort(rng.normal(size=d) * 0.3)[::-1]
        x[:top] = 2 + 0.2 * np.sort(rng.normal(size=top))[::-1]
        leading = (np.cumsum(x[:top]) - 1) / np.arange(1, top + 1) + lam * (np.arange(1, top + 1) + 1) / 2
        tau = leading.max()
        first, length = int(rng.integers(top, d)), int(rng.integers(1, d))
        ranks = np.arange(first, min(first + length, d))
        x[ranks] = tau - lam * (ranks + 1) + rng.choice((-1, 1)) * 10.0 ** rng.uniform(-9, -1)
        rows.append(rng.permutation(x) * gamma)
    return np.array(rows)


@pytest.mark.parametrize("d", [40, 64, 100, 256, 600])
@pytest.mark.parametrize("gamma", [1.0, 2.0])
def test_scores_after_the_candidates_that_matter_are_found(d: int, gamma: float) -> None:
    lam = 0.01
    x = rows_near_the_threshold(d, lam, gamma, 0)
    expected = reference.argmax("oscarmax", x, theta=lam, gamma=gamma)
    for tier in (None, "lanes"):
        with forced_tier(tier):
            y = native.argmax("oscarmax", x, theta=lam, gamma=gamma)
            single = native.argmax("oscarmax", x.astype(np.float32), theta=lam, gamma=gamma)
        np.testing.assert_allclose(y, expected, rtol=0, atol=1e-12)
        rounded = reference.argmax("oscarmax", x.astype(np.float32).astype(float), theta=lam, gamma=gamma)
        np.testing.assert_allclose(single, rounded, rtol=0, atol=2e-6)
