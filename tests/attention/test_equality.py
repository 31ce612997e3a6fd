"""Fused attention equals the dense composition: outputs, weights, gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention_reference import MAPPINGS, compose, draw, gradients, make_mask, regular_rows, relative_error

import regmax

SIZES = {
    "odd": (33, 47, 8, 5),
    "whole": (64, 96, 64, 64),
    "long": (70, 301, 24, 40),
    "square": (16, 16, 16, 32),
}
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-11}


@pytest.mark.parametrize("mapping", MAPPINGS, ids=str)
@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("mask_kind", ["none", "right", "left", "rows"])
@pytest.mark.parametrize("kv_heads", [4, 2], ids=["", "gqa"])
def test_attention_equals_the_dense_composition(
    mapping: Any, is_causal: bool, mask_kind: str, kv_heads: int, fused_calls: list[str]
) -> None:
    for dtype in TOLERANCE:
        for size, (queries, keys, e, e_v) in SIZES.items():
            for spread in (0.02, 1.0, 4.0):  # nearly all, some, or few weights are nonzero
                shapes = {"queries": queries, "keys": keys, "e": e, "e_v": e_v, "kv_heads": kv_heads}
                inputs = draw(spread=spread, dtype=dtype, **shapes)
                options = {
                    "mask": make_mask(mask_kind, queries, keys),
                    "is_causal": is_causal,
                    "enable_gqa": kv_heads == 2,
                }
                out, weights = regmax.attention(*inputs, mapping=mapping, return_weights="sparse", **options)
                wanted, y = compose(*inputs, mapping, **options)
                assert relative_error(out, wanted) < TOLERANCE[dtype], (dtype, size, spread)
                regular = regular_rows(weights.to_dense(), y)
                assert regular.double().mean() > (0.9 if dtype == torch.float32 else 0.999)
                pairs = gradients(out, inputs, regular), gradients(wanted, inputs, regular)
                for found, grad in zip(*pairs, strict=True):
                    assert relative_error(found, grad) < 10 * TOLERANCE[dtype], (dtype, size, spread)
    assert len(fused_calls) == 2 * len(SIZES) * 3


@pytest.mark.parametrize("mapping", MAPPINGS, ids=str)
@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
def test_gradients_pass_gradcheck(mapping: Any, is_causal: bool, fused_calls: list[str]) -> None:
    inputs = draw(batch=(), heads=2, queries=9, keys=11, e=3, e_v=2, dtype=torch.float64)
    mask = make_mask("right", 9, 11)[0]

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        return regmax.attention(*tensors, mapping=mapping, is_causal=is_causal, mask=mask)

    assert torch.autograd.gradcheck(run, inputs, fast_mode=True)
    assert fused_calls


@pytest.mark.parametrize("mapping", ["sparsemax", "fusedmax", "oscarmax", "sqpnormmax", "entmax"])
def test_second_derivatives_are_those_of_the_dense_composition(mapping: str, fused_calls: list[str]) -> None:
    inputs = draw(batch=(), heads=1, queries=8, keys=6, e=3, e_v=2, dtype=torch.float64)
    assert torch.autograd.gradgradcheck(lambda *x: regmax.attention(*x, mapping=mapping), inputs)
    assert fused_calls


@pytest.mark.parametrize("mapping", MAPPINGS, ids=str)
def test_sparse_weights_are_the_dense_ones(mapping: Any, fused_calls: list[str]) -> None:
    inputs = draw(dtype=torch.float64)
    mask = make_mask("rows", 33, 47)
    out, weights = regmax.attention(*inputs, mapping=mapping, mask=mask, return_weights="sparse")
    wanted, y = compose(*inputs, mapping, mask=mask)
    dense = weights.to_dense()
    assert fused_calls
    assert not weights.values.requires_grad
    assert torch.allclose(out, wanted, atol=1e-12)
    assert torch.allclose(dense, y, atol=1e-12)
    assert torch.equal(dense != 0, y != 0), "zeros are exact"
    assert (weights.values != 0).all()


def test_fused_weights_are_bitwise_equal(fused_calls: list[str]) -> None:
    q, k, v = draw(queries=64, keys=200, e=16, e_v=16, spread=2.0)
    mapping = regmax.FusedLasso(lam=0.3)
    _, weights = regmax.attention(q, k, v, mapping=mapping, return_weights="sparse")
    _, y = compose(q, k, v, mapping)
    joined = (y[..., 1:] == y[..., :-1]) & (y[..., 1:] > 0)
    dense = weights.to_dense()
    assert fused_calls
    assert joined.any()
    assert (dense[..., 1:] == dense[..., :-1])[joined].float().mean() > 0.999


@pytest.mark.parametrize("mapping", ["sparsemax", "fusedmax", "oscarmax", "sqpnormmax", "entmax"])
@pytest.mark.parametrize("shape", [(4, 33, 47), (4, 1, 47), (1, 33, 47), (33, 47), (2, 1, 1, 47)], ids=str)
def test_a_bias_is_added_to_the_scores(mapping: str, shape: tuple[int, ...], fused_calls: list[str]) -> None:
    inputs = draw(dtype=torch.float64)
    bias = torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    bias[..., 7] = -torch.inf
    for mask in (None, make_mask("right", 33, 47), make_mask("rows", 33, 47)):
        out = regmax.attention(*inputs, mapping=mapping, mask=mask, bias=bias)
        wanted, _ = compose(*inputs, mapping, mask=mask, bias=bias)
        assert torch.allclose(out, wanted, atol=1e-11)
        for found, grad in zip(gradients(out, inputs), gradients(wanted, inputs), strict=True):
            assert torch.allclose(found, grad, atol=1e-11)
    assert len(fused_calls) == 3


def test_a_learnable_bias_gets_its_gradient() -> None:
    inputs = draw(dtype=torch.float64)
    bias = torch.randn(4, 33, 47, dtype=torch.float64, requires_grad=True)
    out = regmax.attention(*inputs, mapping="fusedmax", bias=bias)
    wanted, _ = compose(*inputs, "fusedmax", bias=bias)
    assert torch.allclose(gradients(out, (bias,))[0], gradients(wanted, (bias,))[0])


@pytest.mark.parametrize("kind", ["right", "rows"])
def test_heads_that_share_keys_may_have_masks_of_their_own(kind: str, fused_calls: list[str]) -> None:
    inputs = draw(kv_heads=2, dtype=torch.float64)
    mask = torch.rand(2, 4, 33 if kind == "rows" else 1, 47, generator=torch.Generator().manual_seed(0)) < 0.6
    out = regmax.attention(*inputs, mapping="fusedmax", mask=mask, enable_gqa=True)
    wanted, _ = compose(*inputs, "fusedmax", mask=mask, enable_gqa=True)
    assert fused_calls
    assert torch.allclose(out, wanted, atol=1e-12)
    for found, grad in zip(gradients(out, inputs), gradients(wanted, inputs), strict=True):
        assert torch.allclose(found, grad, atol=1e-12)
