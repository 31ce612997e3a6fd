"""Hypothesis strategies: scores with ties, signed zeros, huge and tiny scales, every size; masks; directions."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

SIZES = st.sampled_from((1, 2, 3, 4, 5, 8, 17, 64, 257))
SCALES = st.sampled_from((1e-6, 1e-2, 1.0, 1.0, 1.0, 10.0, 1e6))
FLOATS = st.sampled_from((np.float64, np.float64, np.float32))
# Multiples of one twentieth are commensurate with lam = 0.1 and lam = 1: a tie then decides about fusing.
TIED = st.integers(-30, 30).map(lambda k: 0.05 * k)


@st.composite
def scores(draw: st.DrawFn, sizes: st.SearchStrategy[int] = SIZES, rows: int = 3) -> np.ndarray:
    """Rows of scores (n, d), float64 or float32: drawn one by one if they are few, from a seed if many."""
    n, d = draw(st.integers(1, rows)), draw(sizes)
    if n * d <= 24:
        elements = draw(st.sampled_from((st.floats(-3, 3), TIED, st.sampled_from((0.0, -0.0, 1.0, -1.0)))))
        x = draw(hnp.arrays(np.float64, (n, d), elements=elements))
    else:
        x = _many(draw(st.integers(0, 2**32 - 1)), draw(st.sampled_from(sorted(KINDS))), n, d)
    return (draw(SCALES) * x).astype(draw(FLOATS))


def _many(seed: int, kind: str, n: int, d: int) -> np.ndarray:
    return KINDS[kind](np.random.default_rng(seed), n, d)


KINDS = {
    "normal": lambda rng, n, d: rng.normal(size=(n, d)),
    "flat": lambda rng, n, d: 0.01 * rng.normal(size=(n, d)),
    "tied": lambda rng, n, d: 0.05 * rng.integers(-30, 30, size=(n, d)),
    "segments": lambda rng, n, d: np.repeat(rng.normal(size=(n, d)), 7, axis=1)[:, :d],
    "ramp": lambda rng, n, d: 0.1 * np.arange(d) * rng.integers(-1, 2, size=(n, 1)),
    "signed zeros": lambda rng, n, d: np.copysign(0.0, rng.normal(size=(n, d))),
}


@st.composite
def masked_scores(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Scores and a boolean mask of their shape: sparse, dense, a prefix (padding), or empty."""
    x = draw(scores())
    n, d = x.shape
    if draw(st.booleans()):
        lengths = np.array(draw(st.lists(st.integers(0, d), min_size=n, max_size=n)))
        return x, np.arange(d) < lengths[:, None]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return x, rng.random((n, d)) < draw(st.sampled_from((0.1, 0.5, 0.9)))


def seeds() -> st.SearchStrategy[np.random.Generator]:
    """A random generator for values that need no shrinking: directions, permutations, other points."""
    return st.integers(0, 2**32 - 1).map(np.random.default_rng)
