"""Weights that are powers of the scores: their accuracy, and that the bits of a row do not depend on the others."""

from __future__ import annotations

import numpy as np
import pytest
from fronts import TIERS, forced_tier

from regmax.kernels import native

STRENGTHS = {"entmax": (1.05, 1.1, 1.25, 4 / 3, 1.5, 1.7), "sqpnormmax": (1.01, 1.1, 1.25, 1.3, 1.5, 1.9)}
CASES = [(kernel, theta) for kernel, thetas in STRENGTHS.items() for theta in thetas]
cases = pytest.mark.parametrize(("kernel", "theta"), CASES)
lengths = pytest.mark.parametrize("d", [5, 16, 70, 600])

pytestmark = pytest.mark.skipif(native.core is None, reason="needs the native core")


def rows(d: int, n: int = 64) -> np.ndarray:
    """Normal, flat, tied and wide rows."""
    generator = np.random.default_rng(d)
    scale = np.array([1.0, 0.03, 1.0, 8.0])[np.arange(n) % 4, None]
    x = scale * generator.standard_normal((n, d))
    x[2::4] = np.round(4 * x[2::4]) / 4
    return x.astype(np.float32)


@pytest.mark.pairs
@pytest.mark.parametrize("tier", [None, *TIERS])
@cases
@lengths
def test_float32_weights_are_float64_weights_rounded(
    kernel: str, theta: float, d: int, tier: str | None
) -> None:
    x = rows(d)
    exact = native.argmax(kernel, x.astype(np.float64), None, theta)
    with forced_tier(tier):
        y = native.argmax(kernel, x, None, theta)
    ulp = np.spacing(exact.max(axis=1, keepdims=True).astype(np.float32))
    assert (np.abs(y - exact) / ulp).max() < 8


@cases
@lengths
def test_undefined_rows_change_no_bit_of_their_neighbours(kernel: str, theta: float, d: int) -> None:
    x = rows(d)
    alone = native.argmax(kernel, x, None, theta)
    x[3::8], x[5::16] = -np.inf, np.nan
    defined = np.isfinite(x).all(axis=1)
    np.testing.assert_array_equal(native.argmax(kernel, x, None, theta)[defined], alone[defined])


@pytest.mark.parametrize("kernel", STRENGTHS)
@lengths
def test_strengths_of_other_rows_change_no_bit(kernel: str, d: int) -> None:
    x, v = rows(d), rows(d)[::-1].copy()
    own = np.resize(np.array(STRENGTHS[kernel]), len(x))
    mixed = native.argmax(kernel, x, None, own)
    product = native.jacobian_product(kernel, mixed, v, None, own)
    for theta in STRENGTHS[kernel]:
        same = own == theta
        equal = np.full(same.sum(), theta)
        y = native.argmax(kernel, x[same], None, equal)
        np.testing.assert_array_equal(mixed[same], y)
        np.testing.assert_array_equal(product[same], native.jacobian_product(kernel, y, v[same], None, equal))


@pytest.mark.pairs
@pytest.mark.parametrize("alpha", [1.05, 1.2, 1.25, 4 / 3, 1.5])
@pytest.mark.parametrize("tier", [None, *TIERS])
@lengths
def test_jacobian_of_entmax_keeps_its_digits(alpha: float, d: int, tier: str | None) -> None:
    y = native.argmax("entmax", rows(d), None, alpha)
    v = np.random.default_rng(1).standard_normal(y.shape).astype(np.float32)
    exact = native.jacobian_product("entmax", y.astype(np.float64), v.astype(np.float64), None, alpha)
    with forced_tier(tier):
        product = native.jacobian_product("entmax", y, v, None, alpha)
    size = np.abs(v).max() * y.max(axis=1, keepdims=True) ** (2 - alpha)  # of diag(y^(2-alpha))
    assert (np.abs(product - exact) / size).max() < 4e-6


@pytest.mark.pairs
@pytest.mark.parametrize("p", [1.006, 1.01, 1.03, 1.1, 1.5, 1.99])
@pytest.mark.parametrize("tier", [None, *TIERS])
@lengths
def test_jacobian_of_sqpnormmax_keeps_its_digits_near_one(p: float, d: int, tier: str | None) -> None:
    y = native.argmax("sqpnormmax", rows(d), None, p)
    v = np.random.default_rng(1).standard_normal(y.shape).astype(np.float32)
    exact = native.jacobian_product("sqpnormmax", y.astype(np.float64), v.astype(np.float64), None, p)
    with forced_tier(tier):
        product = native.jacobian_product("sqpnormmax", y, v, None, p)
    size = (
        np.abs(v).max() * y.max(axis=1, keepdims=True) ** (2 - p) / (p - 1)
    )  # of diag(y^(2-p)) D, D >= 1 / (p - 1)
    assert (np.abs(product - exact) / size).max() < 2e-6


@pytest.mark.parametrize("p", [1.1, 1.5, 1.9])
@pytest.mark.parametrize("tier", [None, *TIERS])
def test_jacobian_of_sqpnormmax_of_long_flat_rows(p: float, tier: str | None) -> None:
    """Weights of about 1/d, for which y^p is much smaller than y."""
    x = (1 + np.spacing(np.float32(1)) * (np.arange(8 * 4096) % 3).reshape(8, 4096)).astype(np.float32)
    y = native.argmax("sqpnormmax", x, None, p)
    v = np.random.default_rng(2).standard_normal(y.shape).astype(np.float32)
    exact = native.jacobian_product("sqpnormmax", y.astype(np.float64), v.astype(np.float64), None, p)
    with forced_tier(tier):
        product = native.jacobian_product("sqpnormmax", y, v, None, p)
    assert np.abs(product - exact).max() < 2e-6 * np.abs(exact).max()


def tiny_weights(d: int) -> np.ndarray:
    """Rows with weights below the normal float32 numbers at p = 1.01."""
    x = np.zeros((32, d), np.float32)
    x[:, 1::2] = -np.linspace(0.4, 0.7, 32, dtype=np.float32)[:, None]
    return x


@lengths
def test_weights_below_the_normal_numbers_are_rounded_once(d: int) -> None:
    x = tiny_weights(d)
    exact = native.argmax("sqpnormmax", x.astype(np.float64), None, 1.01)
    y = native.argmax("sqpnormmax", x, None, 1.01)
    tiny = np.finfo(np.float32).tiny
    assert ((y > 0) & (y < tiny)).any()
    small = exact < tiny
    np.testing.assert_allclose(
        y[small], exact[small], rtol=2e-4, atol=2 * np.finfo(np.float32).smallest_subnormal
    )


@lengths
def test_products_hold_next_to_weights_below_the_normal_numbers(d: int) -> None:
    y = native.argmax("sqpnormmax", tiny_weights(d), None, 1.01)
    v = rows(d, len(y))
    exact = native.jacobian_product("sqpnormmax", y.astype(np.float64), v.astype(np.float64), None, 1.01)
    product = native.jacobian_product("sqpnormmax", y, v, None, 1.01)
    np.testing.assert_allclose(product, exact, rtol=1e-4, atol=1e-4)
    assert not product[y < np.finfo(np.float32).tiny].any()


@pytest.mark.parametrize("d", [600, 2100])
def test_entmax_rows_with_about_48_candidates(d: int) -> None:
    generator = np.random.default_rng(d)
    x = -8 - generator.random((64, d), np.float32)
    for r in range(64):
        x[r, generator.permutation(d)[: r + 20]] = 0.05 * generator.standard_normal(r + 20)
    y, v = native.argmax("entmax", x, None, 1.5), rows(d)
    exact = native.argmax("entmax", x.astype(np.float64), None, 1.5)
    np.testing.assert_allclose(y, exact, atol=1e-7)
    assert set((y > 0).sum(axis=1)) >= {40, 47, 48, 49, 60}
    product = native.jacobian_product("entmax", y, v, None, 1.5)
    wanted = native.jacobian_product("entmax", exact, v.astype(np.float64), None, 1.5)
    np.testing.assert_allclose(product, wanted, atol=2e-6)


@pytest.mark.parametrize(("kernel", "theta"), [("entmax", 1.9), ("sqpnormmax", 1.9), ("entmax", 1.7)])
@pytest.mark.parametrize("gamma", [1.0, 0.7])
def test_scores_close_to_a_threshold_that_is_guessed_too_high_keep_their_weights(
    kernel: str, theta: float, gamma: float
) -> None:
    """Newton's method from few peaks and a plateau ends above the threshold: scores between them have weight."""
    tied = np.concatenate([np.full(4, 0.5), np.full(6, 0.25), np.full(6, -3.0)])
    weights = native.argmax(kernel, tied[None], None, theta)[0]
    low, high = -3.0, 0.25
    for _ in range(60):  # the threshold: the score from which on a further one has weight
        middle = (low + high) / 2
        above = native.argmax(kernel, np.append(tied[:-1], middle)[None], None, theta)[0, -1] > 0
        low, high = (low, middle) if above else (middle, high)
    assert weights[:10].min() > 0
    steps = np.concatenate([-np.logspace(-7, -1, 31), np.logspace(-7, -1.2, 31)])
    x = np.tile(tied, (len(steps), 1))
    x[:, -1] = high + steps
    x = (gamma * x).astype(np.float32)
    exact = native.argmax(kernel, x.astype(np.float64), None, theta, gamma=gamma)
    y = native.argmax(kernel, x, None, theta, gamma=gamma)
    assert (exact[:, -1] > 0).any()
    assert (exact[:, -1] == 0).any()
    np.testing.assert_allclose(y, exact, rtol=0, atol=2e-7)
    np.testing.assert_array_equal(y > 0, exact > 0)
