"""Points for derivative tests: inside a smooth region of the mapping, with a nonzero J.

At a one-hot point, or if everything is fused, the Jacobian is zero and any wrong code passes.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from table import Entry

MARGIN = 1e-3


def pattern(y: np.ndarray) -> np.ndarray:
    """Which weights are zero, which are equal, and their order: the mapping is smooth while the pattern is constant."""
    order = np.sign(y[..., :, None] - y[..., None, :]).astype(np.int8)
    return np.where(y[..., :, None] == 0, np.int8(-2), order)


@cache
def interior(entry: Entry, n: int, d: int, *, gamma: float = 1.0, seed: int = 0) -> np.ndarray:
    """n rows of d >= 4 scores with at least two groups in the support, one of them fused if the mapping fuses.

    The pattern of the weights does not change when the scores move by MARGIN.
    """
    rng = np.random.default_rng([seed, d])
    found = np.empty((0, d))
    for _ in range(100):
        if len(found) >= n:
            return found[:n]
        x = _candidates(entry, d, gamma, rng)
        found = np.concatenate([found, x[_is_interior(entry, x, gamma, rng)]])
    raise AssertionError(f"no interior points for {entry}")


def _candidates(entry: Entry, d: int, gamma: float, rng: np.random.Generator) -> np.ndarray:
    x = 0.7 * gamma * (1 + 2 * entry.parameters.get("lam", 0.0)) * rng.normal(size=(100, d))
    if entry.positional:  # similar neighbours; otherwise a large lam fuses all or nothing
        x = x[:, np.sort(rng.integers(0, d // 2, size=d))] + 0.1 * gamma * rng.normal(size=x.shape)
    return x


def _is_interior(entry: Entry, x: np.ndarray, gamma: float, rng: np.random.Generator) -> np.ndarray:
    y = entry(x, gamma=gamma)
    levels = _levels(y)
    good = levels >= 2
    if entry.fuses:
        good &= np.sum(y > 0, axis=-1) > levels
    for _ in range(8):
        moved = entry(x + MARGIN * rng.choice((-1, 1), size=x.shape), gamma=gamma)
        good &= np.all(pattern(moved) == pattern(y), axis=(1, 2))
    return good


def _levels(y: np.ndarray) -> np.ndarray:
    """The number of distinct positive weights in a row."""
    ordered = np.sort(y, axis=-1)
    return np.sum((np.diff(ordered, axis=-1, prepend=0.0) != 0) & (ordered > 0), axis=-1)
