"""The core's prox_oscar where it leaves its usual path: directions with few groups, results far smaller than scores."""

from __future__ import annotations

import numpy as np
import pytest

from regmax.kernels import native, reference


@pytest.mark.pairs
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [3, 16, 40, 130, 300])
@pytest.mark.parametrize("touched", [0, 1, 3, 9, 40])
def test_products_of_prox_oscar_for_a_sparse_v(dtype: type, d: int, touched: int) -> None:
    """As after sparsemax: v is zero but for a few positions, whose groups have members anywhere, of either sign."""
    generator = np.random.default_rng(d + touched)
    x = generator.normal(size=(60, d)).round(1).astype(dtype)
    x[::5, 0], x[1::5] = 30, x[1::5] / 100
    z = native.argmax("prox_oscar", x, None, 1 / d)
    v = np.zeros_like(z)
    for direction in v:
        direction[generator.integers(0, d, touched)] = generator.normal(size=touched)
    ours = native.jacobian_product("prox_oscar", z, v, None, 1 / d)
    expected = reference.jacobian_product("prox_oscar", z, v, None, 1 / d)
    np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-7)
    assert not np.signbit(ours[ours == 0]).any()


@pytest.mark.parametrize("d", [20, 200, 2000])
def test_small_results_of_prox_oscar_keep_their_digits(d: int) -> None:
    """The smallest size has no penalty. Sums of the row, in double, would spoil its last digits in float32."""
    x = (1e4 * (1 + np.arange(d)[::-1] / 7) * (-1) ** np.arange(d)).astype(np.float32)[None]
    x[0, -1] = 1.2345678e-3
    assert native.argmax("prox_oscar", x, None, 1e-3)[0, -1] == x[0, -1]
