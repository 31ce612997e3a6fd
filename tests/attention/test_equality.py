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


@pytest.mark.pairs
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


BIASES = [(4, 33, 47), (1, 33, 47), (33, 47), (2, 1, 1, 47), (4, 1, 47), (47,), (33, 1), (2, 4, 33, 47), ()]


@pytest.mark.pairs
@pytest.mark.parametrize("mapping", ["sparsemax", "fusedmax", "oscarmax", "sqpnormmax"])
@pytest.mark.parametrize("shape", BIASES, ids=str)
@pytest.mark.parametrize("queries", [33, 3])
def test_a_learnable_bias_gets_its_gradient(
    mapping: str, shape: tuple[int, ...], queries: int, fused_calls: list[str]
) -> None:
    shape = tuple(queries if size == 33 else size for size in shape)
    for spread in (0.02, 2.0):  # dense blocks are recomputed
        for kv_heads in (4, 2):
            inputs = draw(queries=queries, kv_heads=kv_heads, spread=spread, dtype=torch.float64)
            bias = torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
            bias.requires_grad_()
            options = {
                "mask": make_mask("rows" if queries == 33 else "left", queries, 47),
                "enable_gqa": True,
            }
            out = regmax.attention(*inputs, mapping=f"{mapping},gamma=1.5", bias=bias, **options)
            wanted, _ = compose(*inputs, f"{mapping},gamma=1.5", bias=bias, **options)
            pairs = gradients(out, (*inputs, bias)), gradients(wanted, (*inputs, bias))
            for found, grad in zip(*pairs, strict=True):
                assert torch.allclose(found, grad, atol=1e-11)
    assert len(fused_calls) == 4


@pytest.mark.parametrize("mapping", ["sparsemax", "fusedmax", "oscarmax", "sqpnormmax", "entmax"])
def test_uniform_weights_are_recomputed_instead_of_stored(mapping: str) -> None:
    q, k, v = (torch.randn(2, 256, 16, requires_grad=True) for _ in range(3))
    sizes: list[int] = []

    def save(tensor: torch.Tensor) -> torch.Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        out = regmax.attention(0 * q, k, v, mapping=mapping)
    assert torch.allclose(out, v.mean(-2, keepdim=True), atol=1e-6)
    assert max(sizes) <= q.numel()


def test_a_learnable_bias_in_other_types(fused_calls: list[str]) -> None:
    q, k, v = draw(dtype=torch.bfloat16)
    for dtype in (torch.float32, torch.bfloat16):
        bias = torch.randn(33, 47, dtype=dtype, requires_grad=True)
        (grad,) = gradients(regmax.attention(q, k, v, bias=bias), (bias,))
        assert grad.dtype == dtype
        assert grad.count_nonzero()
    assert len(fused_calls) == 2


@pytest.mark.pairs
@pytest.mark.parametrize("mapping", MAPPINGS, ids=str)
@pytest.mark.parametrize("mask_kind", ["none", "right", "left", "rows"])
@pytest.mark.parametrize("queries", [33, 2])
def test_dense_weights_carry_gradients(
    mapping: Any, mask_kind: str, queries: int, fused_calls: list[str]
) -> None:
    options = {
        "mask": make_mask(mask_kind if queries > 3 else "right", queries, 47),
        "is_causal": queries > 3,
    }
    for spread in (0.02, 1.0, 4.0):
        inputs = draw(queries=queries, spread=spread, dtype=torch.float64)
        out, y = regmax.attention(*inputs, mapping=mapping, return_weights=True, **options)
        wanted, dense = compose(*inputs, mapping, **options)
        assert torch.allclose(y, dense, atol=1e-12)
        assert torch.equal(y != 0, dense != 0), "zeros are exact"
        with torch.no_grad():
            plain, weights = regmax.attention(*inputs, mapping=mapping, return_weights=True, **options)
        assert torch.equal(plain, out)
        assert torch.equal(weights, y)
        both = torch.cat([out, y], -1), torch.cat([wanted, dense], -1)
        pairs = gradients(both[0], inputs), gradients(both[1], inputs)
        for found, grad in zip(*pairs, strict=True):
            assert torch.allclose(found, grad, atol=1e-10)
    assert len(fused_calls) == 6


def test_the_gradient_of_the_weights_alone(fused_calls: list[str]) -> None:
    inputs = draw(dtype=torch.float64)
    _, y = regmax.attention(*inputs, return_weights=True)
    _, dense = compose(*inputs, "fusedmax")
    for found, grad in zip(gradients(y, inputs[:2]), gradients(dense, inputs[:2]), strict=True):
        assert torch.allclose(found, grad, atol=1e-12)
    assert fused_calls


@pytest.mark.pairs
@pytest.mark.parametrize("mapping", MAPPINGS, ids=str)
@pytest.mark.parametrize("mask_kind", ["none", "right", "left", "rows"])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_few_queries_read_the_keys_in_place(
    mapping: Any, mask_kind: str, kv_heads: int, fused_calls: list[str]
) -> None:
    calls = 0
    for dtype in TOLERANCE:
        for queries in (1, 2, 4, 7):
            for keys, spread, is_causal in ((47, 0.02, True), (301, 1.0, False), (301, 4.0, False)):
                inputs = draw(
                    queries=queries, keys=keys, kv_heads=kv_heads, e=24, e_v=40, spread=spread, dtype=dtype
                )
                mask = make_mask(mask_kind if queries > 3 or mask_kind != "rows" else "none", queries, keys)
                options = {"mask": mask, "is_causal": is_causal, "enable_gqa": True}
                out, weights = regmax.attention(*inputs, mapping=mapping, return_weights="sparse", **options)
                wanted, y = compose(*inputs, mapping, **options)
                assert relative_error(out, wanted) < TOLERANCE[dtype]
                regular = regular_rows(weights.to_dense(), y)
                pairs = gradients(out, inputs, regular), gradients(wanted, inputs, regular)
                for found, grad in zip(*pairs, strict=True):
                    assert relative_error(found, grad) < 10 * TOLERANCE[dtype], (dtype, queries, keys)
                calls += 1
    assert len(fused_calls) == calls


@pytest.mark.parametrize("mapping", ["sparsemax", "fusedmax,lam=0.4"])
@pytest.mark.parametrize("kind", ["causal", "padded", "left", "window", "ends", "all", "nothing"])
def test_masks_that_keep_a_range_of_keys(mapping: str, kind: str, fused_calls: list[str]) -> None:
    i, j = torch.arange(150)[:, None], torch.arange(150)
    lengths = torch.tensor([150, 97]).reshape(2, 1, 1, 1)
    masks = {
        "causal": (j <= i).expand(2, 1, 150, 150),
        "padded": (j <= i) & (j < lengths),
        "left": (j <= i) & (j >= 150 - lengths),
        "window": ((j <= i) & (j > i - 40)).expand(2, 1, 150, 150),
        "ends": ((j < 3) | (j > 140)).expand(2, 1, 150, 150),
        "all": torch.ones(2, 1, 150, 150, dtype=torch.bool),
        "nothing": torch.zeros(2, 1, 150, 150, dtype=torch.bool),
    }
    for is_causal in (False, True):
        for queries in (150, 5):
            inputs = draw(queries=queries, keys=150, kv_heads=2, dtype=torch.float64)
            mask = masks[kind][..., -queries:, :].contiguous()
            options = {"mask": mask, "is_causal": is_causal, "enable_gqa": True}
            out = regmax.attention(*inputs, mapping=mapping, **options)
            wanted, _ = compose(*inputs, mapping, **options)
            assert torch.allclose(out, wanted, atol=1e-12)
            for found, grad in zip(gradients(out, inputs), gradients(wanted, inputs), strict=True):
                assert torch.allclose(found, grad, atol=1e-11)
    assert len(fused_calls) == 4


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


@pytest.mark.parametrize("queries", [4, 40])
def test_a_product_of_minus_infinity_deletes_its_key(queries: int) -> None:
    # Deletion changes adjacency, so fusedmax must not prune such rows.
    random = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, n, 16, generator=random) for n in (queries, 400, 400))
    keep = torch.rand(2, 1, 400, generator=random) < 0.7
    q[..., 0], k[..., 0] = 1e20, 0.0
    overflowing = k.masked_scatter(
        ~keep.mT & (torch.arange(16) == 0), torch.full((int((~keep).sum()),), -1e20)
    )
    out = regmax.attention(3 * q, overflowing, v, mapping="fusedmax")
    torch.testing.assert_close(out, regmax.attention(3 * q, k, v, mapping="fusedmax", mask=keep))
