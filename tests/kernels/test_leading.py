"""The leading numbers of prox_oscar, for a projection that follows: the same weights and derivatives as from all."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import regmax
from regmax.frontends.torch import ops
from regmax.kernels import native, reference

pytestmark = pytest.mark.skipif(not native.available(), reason="needs the core")
LEADING = native.LEADING["prox_oscar"]
LENGTHS = (1, 2, 5, 16, 33, 64, 128, 200)
Array = np.ndarray


def rows(kind: str, d: int, lam: float) -> Array:
    """40 rows; signs and ties are what pools scores with others of the opposite sign."""
    rng = np.random.default_rng([d, *kind.encode()])
    x, signs = rng.normal(size=(40, d)), rng.choice((-1, 1), size=(40, d))
    return {
        "normal": x,
        "shifted": x + 3,
        "negative": -abs(x),
        "ties": np.round(4 * x) / 4,
        "multiples": lam * rng.integers(0, 8, size=(40, d)) * signs + 1,
        "harmonic": signs / (1 + np.arange(d)),
        "flat": 0.05 * x + 0.5,
        "wide": 10 * x,
        "infinite": np.where(abs(x) > 1.8, -np.inf, x),
        "undefined": np.where(x > 1.8, rng.choice((np.inf, np.nan), size=x.shape), x),
    }[kind]


KINDS = (
    "normal", "shifted", "negative", "ties", "multiples", "harmonic", "flat", "wide", "infinite", "undefined",
)  # fmt: skip


def weights(z: Array, kept: Array) -> Array:
    return native.argmax("sparsemax", z, kept)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("lam", [0.0, 1e-4, 0.01, 0.1, 0.5])
def test_the_weights_are_those_of_all_numbers(kind: str, dtype: type, lam: float) -> None:
    for d in LENGTHS:
        x = rows(kind, d, lam).astype(dtype)
        mask = np.random.default_rng(d).random((1, d)) < 0.8
        for keep in (None, mask, np.arange(d)[None] < d - d // 3):
            full, leading = (native.argmax(kernel, x, keep, lam) for kernel in ("prox_oscar", LEADING))
            kept = (x != -np.inf) & (True if keep is None else keep)
            y, found = weights(full, kept), weights(leading, kept)
            assert np.array_equal(np.isnan(found), np.isnan(y))
            defined = ~np.isnan(y).any(-1)
            full, leading, y, found = (part[defined] for part in (full, leading, y, found))
            assert np.array_equal(found > 0, y > 0)
            size = np.maximum(abs(full).max(-1, keepdims=True, initial=0), 1) * 4 * np.finfo(dtype).eps
            assert (abs(found - y) <= size).all()
            wrong = abs(leading - full) > size
            assert not (
                wrong & ((leading != 0) | (y > 0))
            ).any()  # only numbers without weight differ: they are 0


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "undefined"])
@pytest.mark.parametrize("gamma", [1.0, 0.7])
def test_the_product_is_that_of_all_numbers(kind: str, gamma: float) -> None:
    """With bits, which the lane tier reads, and without; with a mask and a strength per row."""
    for d in LENGTHS:
        lam = 0.02
        x = torch.from_numpy(rows(kind, d, lam))
        rng = np.random.default_rng(d)
        v, keep = torch.from_numpy(rng.normal(size=x.shape)), torch.from_numpy(rng.random(x.shape) < 0.8)
        lams = lam * torch.from_numpy(rng.integers(0, 2, size=(40, 1)))
        for mask, thetas in ((None, None), (keep, None), (None, lams)):
            bits = torch.empty((1, 40, (d + 63) // 64), dtype=torch.int64)
            strengths = mask, thetas, lam, gamma
            full = ops.call_argmax(x, *strengths, "prox_oscar", None)
            leading = ops.call_argmax(x, *strengths, LEADING, bits)
            kept = x != -torch.inf if mask is None else mask & (x != -torch.inf)
            u = native.jacobian_product(
                "sparsemax", weights(full.numpy(), kept.numpy()), v.numpy(), kept.numpy()
            )
            u = torch.from_numpy(u)
            expected = ops.call_jacobian_product(u, full, None, *strengths, "prox_oscar")
            for saved in (bits, None):
                found = ops.call_jacobian_product(u, leading, saved, *strengths, LEADING)
                torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_few_numbers_are_not_zero() -> None:
    """Rows with a certificate: at most 32 sizes were looked at."""
    x = np.random.default_rng(0).normal(size=(4096, 128)).astype(np.float32)
    count = (native.argmax(LEADING, x, theta=0.01) != 0).sum(-1)
    assert (count <= 32).mean() > 0.9
    native.force_tier("scalar")
    try:
        assert (native.argmax(LEADING, x, theta=0.01) == native.argmax("prox_oscar", x, theta=0.01)).all()
    finally:
        native.force_tier(None)


def test_the_composition_agrees_with_the_reference_and_differentiates_twice() -> None:
    omega, rng = regmax.OscarComposition(lam=0.01), np.random.default_rng(1)
    x, v = rng.normal(size=(600, 128)), rng.normal(size=(600, 128))
    z = reference.argmax("prox_oscar", x, theta=0.01)
    y = reference.argmax("sparsemax", z)
    u = reference.jacobian_product("sparsemax", y, v)
    expected = reference.jacobian_product("prox_oscar", z, u, theta=0.01)
    np.testing.assert_allclose(regmax.regularized_argmax(omega, x), y, atol=1e-14)
    scores = torch.from_numpy(x).requires_grad_()
    found = regmax.regularized_argmax(omega, scores)
    np.testing.assert_allclose(found.detach(), y, atol=1e-14)
    for create_graph in (False, True):
        (gradient,) = torch.autograd.grad(
            found, scores, torch.from_numpy(v), create_graph=create_graph, retain_graph=True
        )
        np.testing.assert_allclose(gradient.detach(), expected, atol=1e-12)


def test_the_gradient_of_a_learned_strength() -> None:
    x = torch.from_numpy(np.random.default_rng(2).normal(size=(300, 128)))
    v, lam = torch.randn_like(x), torch.tensor(0.01, dtype=torch.float64, requires_grad=True)

    def value(lam: torch.Tensor) -> torch.Tensor:
        return (regmax.regularized_argmax(regmax.OscarComposition(lam), x) * v).sum()

    (found,) = torch.autograd.grad(value(lam), lam)
    step = 1e-9  # no group changes
    slope = (value(lam.detach() + step) - value(lam.detach() - step)) / (2 * step)
    torch.testing.assert_close(found, slope, rtol=1e-4, atol=1e-3)
