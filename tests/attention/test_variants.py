"""Soft caps, sinks, windows and packed documents equal a dense composition in double precision, with gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention_reference import draw, gradients, make_mask
from torch import Tensor

import regmax
from regmax.resolver import resolve

MAPPINGS = ("softmax", "sparsemax", "fusedmax", "oscarmax", "sqpnormmax", "entmax")
SPARSE = MAPPINGS[1:]
EVERY_MAPPING = pytest.mark.parametrize("mapping", MAPPINGS)
N = 21
DOCUMENTS = torch.tensor([[0] * 9 + [1] * 5 + [2] * 7, [4] * 20 + [7]])
SINKS = torch.tensor([0.5, -1.0, 2.0, 0.0], dtype=torch.float64)


def composed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mapping: Any,
    *,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    is_causal: bool = False,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    window: int | None = None,
    documents: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Output and weights, with every tensor expanded."""
    groups = q.shape[-3] // k.shape[-3]
    k, v = (x.repeat_interleave(groups, -3) for x in (k, v))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias
    keep = seen(scores, is_causal, window, documents)
    if mask is not None:
        keep = keep & mask
    if sinks is not None:
        column = sinks[:, None, None].expand(*scores.shape[:-1], 1)
        scores, keep = torch.cat([scores, column], -1), torch.cat([keep, torch.ones_like(keep[..., :1])], -1)
    y = resolve(mapping)(scores, -1, mask=keep)
    if sinks is not None:
        y = y[..., :-1]
    return y @ v, y


def seen(scores: Tensor, is_causal: bool, window: int | None, documents: Tensor | None) -> Tensor:
    """Which keys each query sees, one pair at a time."""
    keep = torch.ones_like(scores, dtype=torch.bool)
    for i in range(scores.shape[-2]):
        for j in range(scores.shape[-1]):
            if (is_causal and j > i) or (window is not None and abs(i - j) >= window):
                keep[..., i, j] = False
            if documents is not None:
                keep[..., i, j] &= (documents[:, i] == documents[:, j])[:, None]
    return keep


def compare(mapping: str, *, kv_heads: int = 4, mask_kind: str = "right", **options: Any) -> None:
    inputs = draw(queries=N, keys=N, kv_heads=kv_heads, spread=2.0, dtype=torch.float64)
    options["mask"] = make_mask(mask_kind, N, N)
    sinks = options.get("sinks")
    if sinks is not None:
        options["sinks"] = sinks = sinks.clone().requires_grad_()
        inputs = (*inputs, sinks)
    gqa = {"enable_gqa": kv_heads != 4}
    wanted, y = composed(*inputs[:3], mapping, **options)
    out = regmax.attention(*inputs[:3], mapping=mapping, **options, **gqa)
    torch.testing.assert_close(out, wanted, rtol=1e-9, atol=1e-10)
    for found, grad in zip(gradients(out, inputs), gradients(wanted, inputs), strict=True):
        torch.testing.assert_close(found, grad, rtol=1e-8, atol=1e-9)
    out, dense = regmax.attention(*inputs[:3], mapping=mapping, return_weights=True, **options, **gqa)
    torch.testing.assert_close(out, wanted, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(dense, y, rtol=1e-9, atol=1e-10)
    _, weights = regmax.attention(*inputs[:3], mapping=mapping, return_weights="sparse", **options, **gqa)
    assert torch.equal(weights.to_dense(), dense.detach())
    assert weights.shape == y.shape


@EVERY_MAPPING
@pytest.mark.parametrize("kv_heads", [4, 2], ids=["", "gqa"])
def test_soft_capped_scores(mapping: str, kv_heads: int) -> None:
    compare(mapping, softcap=1.5, kv_heads=kv_heads)
    compare(mapping, softcap=1.5, is_causal=True, bias=torch.randn(4, 1, N, dtype=torch.float64))


@EVERY_MAPPING
@pytest.mark.parametrize("kv_heads", [4, 2], ids=["", "gqa"])
def test_sinks(mapping: str, kv_heads: int) -> None:
    compare(mapping, sinks=SINKS, kv_heads=kv_heads)
    compare(mapping, sinks=SINKS, is_causal=True, mask_kind="none")
    compare(mapping, sinks=SINKS, mask_kind="rows", bias=torch.randn(N, dtype=torch.float64))


@EVERY_MAPPING
@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
def test_windows(mapping: str, is_causal: bool) -> None:
    compare(mapping, window=4, is_causal=is_causal)
    compare(mapping, window=1, is_causal=is_causal, mask_kind="none")


@EVERY_MAPPING
@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
def test_packed_documents(mapping: str, is_causal: bool) -> None:
    compare(mapping, documents=DOCUMENTS, is_causal=is_causal, mask_kind="none")


@EVERY_MAPPING
def test_all_at_once(mapping: str) -> None:
    compare(mapping, documents=DOCUMENTS, is_causal=True, window=5, sinks=SINKS, softcap=2.0, kv_heads=2)


@pytest.mark.parametrize("mapping", SPARSE)
def test_packed_documents_equal_one_document_at_a_time(mapping: str) -> None:
    q, k, v = draw(batch=(1,), queries=N, keys=N, dtype=torch.float64)
    packed = regmax.attention(q, k, v, mapping=mapping, is_causal=True, documents=DOCUMENTS[:1])
    for part in (slice(0, 9), slice(9, 14), slice(14, N)):
        one = regmax.attention(
            q[..., part, :], k[..., part, :], v[..., part, :], mapping=mapping, is_causal=True
        )
        torch.testing.assert_close(packed[..., part, :], one, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("mapping", SPARSE)
def test_sinks_windows_and_documents_are_fused(mapping: str, fused_calls: list[str]) -> None:
    q, k, v = draw(queries=N, keys=N)
    regmax.attention(q, k, v, mapping=mapping, sinks=SINKS.float(), window=3, documents=DOCUMENTS)
    assert fused_calls == [mapping]


def test_a_query_that_sees_only_the_sink_gives_zeros() -> None:
    q, k, v = draw(queries=3, keys=5)
    mask = torch.zeros(1, 1, 3, 5, dtype=torch.bool)
    out, y = regmax.attention(
        q, k, v, mapping="sparsemax", sinks=SINKS.float(), mask=mask, return_weights=True
    )
    assert not out.any()
    assert not y.any()


def test_without_heads() -> None:
    q, k, v = (x[0, 0].detach() for x in draw(queries=N, keys=N, dtype=torch.float64))
    documents, sink = DOCUMENTS[0], torch.tensor(0.3, dtype=torch.float64)
    out = regmax.attention(q, k, v, mapping="fusedmax", documents=documents, sinks=sink)
    wanted, _ = composed(
        *(x[None, None] for x in (q, k, v)), "fusedmax", documents=documents[None], sinks=sink[None]
    )
    torch.testing.assert_close(out, wanted[0, 0])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"softcap": 0.0}, ValueError, r"softcap=...\)` must be positive and finite\. Got 0"),
        ({"softcap": "a"}, TypeError, r"softcap=...\)` must be a number"),
        ({"window": 0}, ValueError, r"window=...\)` must be a number of keys, at least 1\. Got 0"),
        ({"window": 2.5}, ValueError, r"window=...\)` must be a number of keys, at least 1\. Got 2.5"),
        ({"sinks": 0.5}, TypeError, r"sinks=...\)` must be a floating-point tensor\. Got float"),
        (
            {"sinks": torch.zeros(3)},
            ValueError,
            r"sinks=...\)` must have one score per head, \(4,\)\. Got \(3,\)",
        ),
        ({"documents": [0, 1]}, TypeError, r"documents=...\)` must be a tensor of integers\. Got list"),
        ({"documents": torch.zeros(N)}, TypeError, r"must be a tensor of integers\. Got torch.float32"),
        (
            {"documents": torch.zeros(2, 5, dtype=torch.long)},
            ValueError,
            r"documents=...\)` must broadcast to the shape \(2, 21\)\. Got \(2, 5\)",
        ),
    ],
)
def test_bad_arguments_raise(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        regmax.attention(*draw(queries=N, keys=N), **options)


@pytest.mark.parametrize(
    "options", [{"documents": torch.zeros(5, dtype=torch.long)}, {"window": 2}], ids=["documents", "window"]
)
def test_positions_need_as_many_queries_as_keys(options: dict[str, Any]) -> None:
    """The last query of a decoder is not at position 0."""
    with pytest.raises(ValueError, match=r"needs as many queries as keys\. Got 3 and 5: pass a mask"):
        regmax.attention(*draw(queries=3, keys=5), **options)
