"""Twelve families of rows: attention-like, flat, tied, monotone, oscillating and with extreme ratios."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Array = np.ndarray
Family = Callable[[np.random.Generator, int, int], Array]


def _steps(rng: np.random.Generator, n: int, d: int) -> Array:
    return np.repeat(rng.normal(size=(n, -(-d // 8))), 8, axis=1)[:, :d]


FAMILIES: dict[str, Family] = {
    "normal": lambda rng, n, d: rng.normal(size=(n, d)),
    "peaked": lambda rng, n, d: 3 * rng.normal(size=(n, d)),
    "flat": lambda rng, n, d: 0.01 * rng.normal(size=(n, d)),
    "constant": lambda rng, n, d: np.ones((n, d)),
    "tied": lambda rng, n, d: np.round(4 * rng.normal(size=(n, d))) / 4,
    "zeros and ones": lambda rng, n, d: (rng.random((n, d)) < 0.5).astype(float),
    "steps": _steps,
    "ramp": lambda rng, n, d: np.linspace(0, 8, d) * rng.random((n, 1)),
    "sawtooth": lambda rng, n, d: (np.arange(d) % 7) * 0.2 + 0.02 * rng.normal(size=(n, d)),
    "walk": lambda rng, n, d: np.cumsum(0.05 * rng.normal(size=(n, d)), axis=1),
    "geometric": lambda rng, n, d: -(0.5 ** np.arange(d)) * (1 + rng.random((n, 1))),
    "factorial": lambda rng, n, d: -1 / np.cumprod(1 + 0.1 * np.arange(d))[None] * (1 + rng.random((n, 1))),
}


def rows(n: int, d: int, seed: int = 0) -> Array:
    """`n` rows of every family, in float32 precision."""
    rng = np.random.default_rng(seed)
    return np.concatenate([family(rng, n, d) for family in FAMILIES.values()]).astype(np.float32)
