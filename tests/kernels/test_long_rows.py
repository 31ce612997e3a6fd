"""oscarmax of long rows with many weights: float32 sorts them differently from float64, and pools them by value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import regmax
from regmax.kernels import reference

Array = np.ndarray
# Around the sizes at which the sort changes: a vector, a tile, powers of two, and rows merged from parts.
LENGTHS = (33, 64, 65, 255, 256, 257, 1000, 4096, 4097, 9001)
ROWS: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "normal": lambda rng, d: rng.normal(size=(4, d)),
    "wide": lambda rng, d: 20 * rng.normal(size=(4, d)),
    "ties": lambda rng, d: rng.integers(0, 7, size=(4, d)) / 4,
    "rounded": lambda rng, d: np.round(8 * rng.normal(size=(4, d))) / 8,
    "two values": lambda rng, d: 3.0 * rng.integers(0, 2, size=(4, d)),
    "descent": lambda rng, d: -np.arange(d) / rng.integers(20, 200, size=(4, 1)),
    "far tail": lambda rng, d: np.where(np.arange(d) < d // 2, rng.normal(size=(4, d)), -1e30),
}


def rows(kind: str, d: int) -> Array:
    """Four rows of one kind, in float32."""
    return ROWS[kind](np.random.default_rng([d, *kind.encode()]), d).astype(np.float32)


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("lam", [0.001, 0.01, 0.1])
def test_weights_are_those_of_the_reference(kind: str, lam: float) -> None:
    for d in LENGTHS:
        x = rows(kind, d)
        y = regmax.oscarmax(x, lam=lam)
        expected = reference.argmax("oscarmax", x.astype(np.float64), None, lam)
        np.testing.assert_allclose(y, expected, atol=1e-6, err_msg=f"d = {d}")
        order = np.argsort(-x, axis=-1)
        scores, weights = np.take_along_axis(x, order, -1), np.take_along_axis(y, order, -1)
        assert (np.diff(weights) <= 0).all()
        assert (np.diff(weights)[np.diff(scores) == 0] == 0).all()


@pytest.mark.parametrize("kind", ROWS)
def test_gradients_average_over_equal_weights(kind: str) -> None:
    for d in LENGTHS:
        x = torch.tensor(rows(kind, d), requires_grad=True)
        v = torch.randn(x.shape, generator=torch.Generator().manual_seed(d))
        y = regmax.oscarmax(x, lam=0.01)
        (found,) = torch.autograd.grad(y, x, v)
        expected = torch.zeros_like(x, dtype=torch.float64)
        for weights, direction, out in zip(y.detach(), v.double(), expected, strict=True):
            mean = direction[weights > 0].mean()
            for value in weights[weights > 0].unique():
                out[weights == value] = direction[weights == value].mean() - mean
        torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=0, msg=f"d = {d}")
