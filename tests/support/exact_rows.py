"""Rows on which rounding decides something: ties, touching segments, scales far apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray
Generator = np.random.Generator

THETAS: dict[str, tuple[float | None, ...]] = {
    "softmax": (None,),
    "sparsemax": (None,),
    "fusedmax": (0.0, 0.1, 0.25, 3.0),
    "oscarmax": (0.0, 0.01, 0.125),
    "sqpnormmax": (1.01, 1.1, 1.5, 1.9, 2.0),
    "entmax": (1.0, 1.001, 1.25, 1.5, 1.9, 2.0),
    "prox_tv1d": (0.1, 0.25, 3.0),
    "prox_oscar": (0.01, 0.125),
}

Kind = Callable[[Generator, int, float, Any], Array]  # of a generator, d, the step (lam, or .1) and the dtype


def _filled(value: float | None) -> Kind:
    """Normal scores, about a third of which are a low number as models use it for masking."""

    def rows(rng: Generator, d: int, step: float, dtype: Any) -> Array:
        x = rng.normal(size=d)
        x[rng.random(d) < 0.35] = np.finfo(dtype).min if value is None else value
        x[rng.integers(d)] = 0.5
        return x

    return rows


_POWERS = np.array([float(f"1e{k}") for k in range(-12, 13)])  # NumPy's powers differ by processor

KINDS: dict[str, Kind] = {
    "normal": lambda rng, d, step, dtype: rng.normal(size=d),
    "flat": lambda rng, d, step, dtype: 0.03 * rng.normal(size=d),
    "tiny": lambda rng, d, step, dtype: 1e-9 * rng.normal(size=d),
    "vanishing": lambda rng, d, step, dtype: 1e-30 * rng.normal(size=d),
    "wide": lambda rng, d, step, dtype: 30 * rng.normal(size=d),
    "huge": lambda rng, d, step, dtype: 1e12 * rng.normal(size=d),
    "offset": lambda rng, d, step, dtype: rng.normal(size=d) + 1e4,
    "far offset": lambda rng, d, step, dtype: np.round(4 * rng.normal(size=d)) / 4 - 1e6,
    "constant": lambda rng, d, step, dtype: np.full(d, rng.normal()),
    "ties": lambda rng, d, step, dtype: rng.integers(0, 4, size=d) / 2,
    "repeats": lambda rng, d, step, dtype: np.repeat(rng.normal(size=d), rng.integers(1, 4, size=d))[:d],
    "segments": lambda rng, d, step, dtype: np.repeat(0.3 * rng.normal(size=d), 5)[:d],
    "multiples": lambda rng, d, step, dtype: step * rng.integers(-4, 5, size=d),
    "tenths": lambda rng, d, step, dtype: rng.integers(-4, 5, size=d) / 10,
    "ramp": lambda rng, d, step, dtype: step * np.arange(d) * rng.choice((-1, 1)),
    "double ramp": lambda rng, d, step, dtype: 2 * step * np.arange(d) * rng.choice((-1, 1)),
    "sawtooth": lambda rng, d, step, dtype: step * (np.arange(d) % rng.integers(2, 9)),
    "tent": lambda rng, d, step, dtype: -step * np.abs(np.arange(d) - d // 2),
    "alternating": lambda rng, d, step, dtype: 0.5 * (-1.0) ** np.arange(d) * rng.choice((1, step)),
    "geometric": lambda rng, d, step, dtype: rng.choice((-1, 1)) * 2.0 ** -np.arange(d),
    "stairs": lambda rng, d, step, dtype: 2.0 ** -np.floor(np.log2(np.arange(d) + 1)),
    "peak": lambda rng, d, step, dtype: (np.arange(d) == d // 2).astype(float),
    "at the threshold": lambda rng, d, step, dtype: -(rng.integers(0, 3, size=d) / 2.0) * (np.arange(d) > 0),
    "one bit": lambda rng, d, step, dtype: 1 + np.finfo(dtype).eps * rng.integers(-2, 3, size=d),
    "scales apart": lambda rng, d, step, dtype: rng.normal(size=d) * _POWERS[rng.integers(25, size=d)],
    "filled with -1e4": _filled(-1e4),
    "filled with -1e16": _filled(-1e16),
    "filled with -1e18": _filled(-1e18),
    "filled with -1e37": _filled(-1e37),
    "filled with the least number": _filled(None),
}


def row(kind: str, seed: int, d: int, theta: float | None, dtype: Any) -> Array:
    """A row of one kind, rounded to `dtype`, in float64."""
    rng = np.random.default_rng([seed, d, *kind.encode()])
    step = theta if theta and theta <= 1 else 0.1
    return KINDS[kind](rng, d, step, dtype).astype(dtype).astype(np.float64)
