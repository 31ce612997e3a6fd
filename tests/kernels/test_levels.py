"""fusedmax's screening by level sets: rows of which most scores lie within 4 lam of the threshold, float32."""

from __future__ import annotations

import numpy as np
import pytest
from fronts import TIERS, forced_tier

from regmax.kernels import native, reference

KINDS = ("normal", "ties", "ramp", "sawtooth", "harmonic", "flat", "offset")


def rows(kind: str, d: int, n: int = 11) -> np.ndarray:
    """Float32 rows whose sums double holds exactly, and others."""
    rng = np.random.default_rng(d)
    i = np.arange(d)
    made = {
        "normal": rng.normal(size=(n, d)),
        "flat": 0.03 * rng.normal(size=(n, d)),
        "ties": rng.integers(3, size=(n, d)) / 4,
        "offset": 1000 + rng.integers(5, size=(n, d)) / 8,
        "ramp": np.tile(0.5 * i / d, (n, 1)),
        "sawtooth": np.tile(np.float32(0.1) * (i % 8), (n, 1)),
        "harmonic": np.tile(1 / (i + 1), (n, 1)),
    }
    return made[kind].astype(np.float32)


def assert_same(y: np.ndarray, expected: np.ndarray) -> None:
    """The same support, the same segments, and weights up to an ulp of 1."""
    np.testing.assert_array_equal(y > 0, expected > 0)
    edges = expected[:, 1:] != expected[:, :-1]
    assert not np.any((y[:, 1:] != y[:, :-1]) & ~edges)
    np.testing.assert_allclose(y, expected, rtol=0, atol=1.2e-7)


@pytest.mark.pairs
@pytest.mark.parametrize("tier", [None, *TIERS])
@pytest.mark.parametrize("d", [1, 2, 3, 16, 65, 200])
@pytest.mark.parametrize("lam", [0.01, 0.1, 0.25, 1.0, 10.0])
@pytest.mark.parametrize("kind", KINDS)
def test_levels_keep_every_weight(kind: str, lam: float, d: int, tier: str | None) -> None:
    x = rows(kind, d)
    expected = reference.argmax("fusedmax", x.astype(np.float64), theta=lam)
    with forced_tier(tier):
        assert_same(native.argmax("fusedmax", x, theta=lam), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("lam", "gamma"), [(0.1, 0.5), (1.0, 2.0), (0.1, 0.3), (2.0, 1.0)])
def test_rows_of_different_lengths_and_strengths(kind: str, lam: float, gamma: float) -> None:
    """A group of rows with prefix masks: every lane ends at its own place."""
    x = rows(kind, 200, 60)
    keep = np.arange(200) < np.random.default_rng(1).integers(1, 201, size=(len(x), 1))
    expected = reference.argmax("fusedmax", x.astype(np.float64), keep, lam, gamma=gamma)
    assert_same(native.argmax("fusedmax", x, keep, lam, gamma=gamma), expected)


@pytest.mark.parametrize("d", [16, 40, 128, 300])
@pytest.mark.parametrize("gamma", [1.0, 1.7])
def test_few_candidates_of_coarse_scores(d: int, gamma: float) -> None:
    """Scores that are multiples of 1/8 put weights on the threshold and duals on their bounds, beside masks too."""
    rng = np.random.default_rng(d)
    x = (rng.integers(-24, 24, size=(4000, d)) / 8).astype(np.float32)
    keep = rng.random(x.shape) < 0.9
    for lam in (0.0625, 0.125, 0.25):
        for mask in (None, keep):
            y = native.argmax("fusedmax", x, mask, lam, gamma=gamma)
            expected = native.argmax("fusedmax", x.astype(float), mask, lam, gamma=gamma)
            assert_same(y, expected)


@pytest.mark.parametrize("tier", [None, "levels"])
@pytest.mark.parametrize("d", [40, 70, 128, 300])
@pytest.mark.parametrize("size", [1, 40])
def test_many_candidates_of_coarse_scores(size: int, d: int, tier: str | None) -> None:
    """The same for flat rows, with more candidates than are solved side by side; scores far from zero, too."""
    rng = np.random.default_rng(d)
    x = (size + rng.integers(-24, 24, size=(1000, d)) / 512).astype(np.float32)
    keep = rng.random(x.shape) < 0.9
    for lam in (1 / 512, 1 / 128, 0.01):
        for mask in (None, keep):
            with forced_tier(tier):
                y = native.argmax("fusedmax", x, mask, lam)
            assert_same(y, native.argmax("fusedmax", x.astype(float), mask, lam))


@pytest.mark.parametrize("scale", [0.003, 0.03, 0.3])
@pytest.mark.parametrize("d", [70, 512, 1500])
def test_many_candidates_with_all_their_digits(d: int, scale: float) -> None:
    """Sums in double are rounded, and the result is certified."""
    rng = np.random.default_rng(d)
    x = (scale * rng.normal(size=(60, d))).astype(np.float32)
    for lam in (0.1 * scale, scale, 10 * scale):
        with forced_tier("levels"):
            y = native.argmax("fusedmax", x, theta=lam)
        assert_same(y, native.argmax("fusedmax", x.astype(float), theta=lam))
