"""Every tier of the core, forced: adversarial rows, and agreement with the normal choice. The laws run on each too."""

from __future__ import annotations

import adversarial
import numpy as np
import pytest
import torch
from fronts import TIERS, forced_tier

import regmax
from regmax.kernels import native

STRENGTHS = [
    ("sparsemax", None),
    ("fusedmax", 0.1),
    ("oscarmax", 0.02),
    ("sqpnormmax", 1.5),
    ("entmax", 1.5),
    ("entmax", 1.3),
]


@pytest.mark.parametrize("isa", ["baseline", "avx2", "avx512"])
@pytest.mark.parametrize("tier", TIERS)
def test_adversarial_rows_on_each_tier(tier: str, isa: str, capfd: pytest.CaptureFixture[str]) -> None:
    usual = native.instruction_set()
    try:
        native.use_instruction_set(isa)
    except ValueError:
        pytest.skip("this machine does not have it")
    try:
        with forced_tier(tier):
            assert not adversarial.run(rows=6_000, seed=300, seconds=120), capfd.readouterr().out
    finally:
        native.use_instruction_set(usual)


@pytest.mark.pairs
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [5, 33, 200, 700, 5000])
@pytest.mark.parametrize(("kernel", "theta"), STRENGTHS)
def test_the_tiers_agree(kernel: str, theta: float | None, d: int, dtype: type) -> None:
    rng = np.random.default_rng(d)
    scale = np.array([0.01, 0.3, 1.0, 5.0])[rng.integers(0, 4, size=(40, 1))]
    x = (scale * rng.normal(size=(40, d))).astype(dtype)
    v = rng.normal(size=x.shape).astype(dtype)
    keep = rng.random(x.shape) < 0.9
    tolerance = 2e-6 if dtype == np.float32 else 1e-13
    for mask in (None, keep):
        y = native.argmax(kernel, x, mask, theta)
        product = native.jacobian_product(kernel, y, v, mask, theta)
        for tier in TIERS:
            with forced_tier(tier):
                np.testing.assert_allclose(native.argmax(kernel, x, mask, theta), y, rtol=0, atol=tolerance)
                # From the same weights: a tie may fall on either side of the support.
                forced = native.jacobian_product(kernel, y, v, mask, theta)
                np.testing.assert_allclose(forced, product, rtol=0, atol=20 * tolerance)


@pytest.mark.parametrize("tier", [None, *TIERS])
@pytest.mark.parametrize(("kernel", "theta"), STRENGTHS)
def test_the_bits_of_a_row_do_not_depend_on_the_rows_beside_it(
    kernel: str, theta: float | None, tier: str | None
) -> None:
    """Flat rows beside peaked ones: they need other numbers of rounds, and other digits."""
    rng = np.random.default_rng(0)
    for d in (9, 40, 100, 127, 300):
        scale = 10 ** rng.uniform(-3, 0.5, size=(32, 1))
        x = (scale * rng.normal(size=(32, d))).astype(np.float32)
        with forced_tier(tier):
            alone = np.concatenate([native.argmax(kernel, row[None], None, theta) for row in x])
            np.testing.assert_array_equal(native.argmax(kernel, x, None, theta), alone)


@pytest.mark.parametrize("scale", [0.02, 1.0])
@pytest.mark.parametrize("mapping", ["sparsemax", "fusedmax", "oscarmax", "sqpnormmax", "entmax"])
def test_attention_agrees_on_each_tier(mapping: str, scale: float) -> None:
    torch.manual_seed(0)
    q, k, v = (scale * torch.randn(2, 70, 16, dtype=torch.float64) for _ in range(3))

    def gradients() -> list[torch.Tensor]:
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        out = regmax.attention(*leaves, mapping=mapping, is_causal=True)
        return [out.detach(), *torch.autograd.grad(out.square().sum(), leaves)]

    usual = gradients()
    for tier in TIERS:
        with forced_tier(tier):
            for forced, expected in zip(gradients(), usual, strict=True):
                torch.testing.assert_close(forced, expected, rtol=1e-9, atol=1e-11)


def test_an_unknown_tier_is_an_error() -> None:
    with pytest.raises(
        ValueError, match=r"`force_tier\(name\)` must be lanes, whole, levels, scalar or None"
    ):
        native.force_tier("lane")


@pytest.mark.parametrize("scale", [0.1, 1.0])
@pytest.mark.parametrize(
    ("kernel", "theta"), [("entmax", 1.75), ("entmax", 1.9), ("sqpnormmax", 1.75), ("sqpnormmax", 1.9)]
)
def test_float32_gradients_are_those_of_the_exact_weights(kernel: str, theta: float, scale: float) -> None:
    """They are powers such as y^0.1: a small weight must be right to its own digits, not to those of the largest."""
    rng = np.random.default_rng(6)
    for d in (16, 128, 512):
        x = (scale * rng.normal(size=(2000, d))).astype(np.float32)
        v = rng.normal(size=x.shape).astype(np.float32)
        weights = native.argmax(kernel, x.astype(np.float64), None, theta)
        expected = native.jacobian_product(kernel, weights, v.astype(np.float64), None, theta)
        product = native.jacobian_product(kernel, native.argmax(kernel, x, None, theta), v, None, theta)
        np.testing.assert_allclose(product, expected, rtol=0, atol=2e-5)
