"""Attention without gradients: any layout is read as it is, and a plan that is used again checks nothing less."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention_reference import MAPPINGS, compose, relative_error

import regmax
from regmax.kernels import native
from regmax.kernels.native.library import core
from regmax.sparse_attention import plans


@pytest.fixture(autouse=True)
def no_plans() -> None:
    plans._plans.clear()


def laid_out(x: torch.Tensor, layout: str) -> torch.Tensor:
    """The same (batch, heads, rows, e) numbers at other strides."""
    if layout == "heads split":  # of one projection, as in most models
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "a part":  # of a cache and of a joint projection
        batch, heads, rows, e = x.shape
        whole = x.new_full((batch, heads, rows + 3, 2 * e), float("nan"))
        whole[:, :, 1:-2, e:] = x
        return whole[:, :, 1:-2, e:]
    return x


def tensors(kind: str, dtype: torch.dtype, heads: int = 4, kv_heads: int = 2) -> tuple[torch.Tensor, ...]:
    queries, keys, e, e_v = {
        "few": (3, 70, 16, 32),
        "one": (1, 40, 64, 64),
        "many": (35, 50, 32, 32),
        "long": (130, 130, 16, 16),
    }[kind]
    generator = torch.Generator().manual_seed(1)
    shapes = (2, heads, queries, e), (2, kv_heads, keys, e), (2, kv_heads, keys, e_v)
    q, k, v = (torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes)
    return q, k, v


def masks(queries: int, keys: int) -> dict[str, torch.Tensor | None]:
    generator = torch.Generator().manual_seed(2)
    padding = (torch.arange(keys) < torch.tensor([[keys - 7], [keys]]))[:, None, None]
    return {
        "none": None,
        "padding": padding,
        "expanded": padding.expand(2, 1, queries, keys),
        "scattered": torch.rand(2, 1, 1, keys, generator=generator) > 0.3,
        "per query": torch.rand(2, 1, queries, keys, generator=generator) > 0.3,
        "shared": torch.rand(queries, keys, generator=generator) > 0.3,
        "every other column": (torch.rand(2, 1, queries, 2 * keys, generator=generator) > 0.3)[..., ::2],
    }


@pytest.mark.pairs
@pytest.mark.parametrize("mapping", MAPPINGS, ids=str)
@pytest.mark.parametrize("kind", ["few", "one", "many", "long"])
@pytest.mark.parametrize("layout", ["plain", "heads split", "a part"])
def test_every_layout_equals_the_dense_composition(
    mapping: Any, kind: str, layout: str, fused_calls: list[str]
) -> None:
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-11)):
        q, k, v = tensors(kind, dtype)
        given = [laid_out(x, layout) for x in (q, k, v)]
        for name, mask in masks(q.shape[-2], k.shape[-2]).items():
            for spread in (0.02, 1.0):
                for is_causal in (False, True):
                    options = {"mask": mask, "is_causal": is_causal, "enable_gqa": True}
                    out = regmax.attention(spread * given[0], *given[1:], mapping=mapping, **options)
                    wanted, _ = compose(*(x.double() for x in (spread * q, k, v)), mapping, **options)
                    assert relative_error(out, wanted) < tolerance, (dtype, name, spread, is_causal)
    assert len(fused_calls) == 2 * 7 * 4


@pytest.mark.parametrize("layout", ["plain", "heads split"])
def test_the_output_has_the_layout_of_the_queries(layout: str) -> None:
    q, k, v = (laid_out(x, layout) for x in tensors("many", torch.float32))
    out = regmax.attention(q, k, v, mapping="sparsemax", enable_gqa=True)
    assert out.stride() == q.stride()


@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (2, 1, 3)], ids=str)
def test_leading_dimensions(batch: tuple[int, ...]) -> None:
    q, k, v = (torch.randn(*batch, n, 16) for n in (9, 20, 20))
    out = regmax.attention(q, k, v, mapping="fusedmax")
    assert torch.allclose(out, compose(q, k, v, "fusedmax")[0], atol=1e-6)


def test_entries_of_the_same_kind_share_a_plan(fused_calls: list[str]) -> None:
    q, k, v = tensors("many", torch.float32, kv_heads=4)
    for keys in (50, 20, 0):
        mask = (torch.arange(50) < keys).reshape(1, 1, 1, 50)
        out = regmax.attention(q, k, v, mapping="sparsemax", mask=mask)
        assert torch.allclose(out, compose(q, k, v, "sparsemax", mask=mask)[0], atol=1e-6)
    assert len(plans._plans) == 1
    assert fused_calls == ["sparsemax"] * 3


def test_strengths_and_options_have_plans_of_their_own() -> None:
    q, k, v = tensors("many", torch.float32, kv_heads=4)
    module = regmax.nn.Fusedmax(lam=0.3)
    mappings = [
        "fusedmax",
        "fusedmax,lam=0.3",
        regmax.FusedLasso(0.3),
        module,
        "fusedmax,gamma=2.0",
        "sparsemax",
    ]
    for mapping in mappings:
        for options in ({}, {"is_causal": True}, {"scale": 0.5}):
            found = regmax.attention(q, k, v, mapping=mapping, **options)
            again = regmax.attention(q.clone().requires_grad_(), k, v, mapping=mapping, **options)
            assert torch.equal(found, again.detach())
    module = regmax.nn.Fusedmax(lam=0.3, gamma=3.0)
    wanted, _ = compose(q, k, v, module)
    assert torch.allclose(regmax.attention(q, k, v, mapping=module), wanted, atol=1e-6)


def test_a_plan_does_not_outlive_its_conditions() -> None:
    q, k, v = tensors("many", torch.float32, kv_heads=4)
    plain = regmax.attention(q, k, v, mapping="sparsemax")
    assert len(plans._plans) == 1
    with torch.autocast("cpu", torch.bfloat16):
        assert regmax.attention(q, k, v, mapping="sparsemax").dtype == torch.bfloat16
    learned = regmax.attention(q.clone().requires_grad_(), k, v, mapping="sparsemax")
    assert learned.requires_grad
    with torch.inference_mode():
        assert torch.equal(regmax.attention(q, k, v, mapping="sparsemax"), plain)
    batched = torch.vmap(lambda *x: regmax.attention(*x, mapping="sparsemax"))(q, k, v)
    assert torch.allclose(batched, plain, atol=1e-6)
    _, tangent = torch.func.jvp(lambda x: regmax.attention(x, k, v, mapping="sparsemax"), (q,), (q,))
    assert (tangent != 0).any()
    with pytest.raises(TypeError, match="must be boolean"):
        regmax.attention(q, k, v, mapping="sparsemax", mask=torch.ones(50))
    with pytest.raises(TypeError, match="one type and one device"):
        regmax.attention(q, k, v.double(), mapping="sparsemax")


def test_old_plans_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "_MOST", 3)
    for keys in range(1, 9):
        q, k, v = torch.randn(2, 1, 16), torch.randn(2, keys, 16), torch.randn(2, keys, 16)
        out = regmax.attention(q, k, v, mapping="sparsemax")
        assert torch.allclose(out, compose(q, k, v, "sparsemax")[0], atol=1e-6)
        assert len(plans._plans) <= 3


@pytest.mark.parametrize("threads", [1, 2])
def test_the_number_of_threads_changes_no_bit(threads: int) -> None:
    q, k, v = (laid_out(x, "heads split") for x in tensors("long", torch.float32, kv_heads=4))
    wanted = regmax.attention(q, k, v, mapping="fusedmax")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert torch.equal(regmax.attention(q, k, v, mapping="fusedmax"), wanted)
    finally:
        torch.set_num_threads(before)


def test_the_backward_pass_refuses_strides() -> None:
    q, starts, strides = (
        torch.zeros(1, 16, 16),
        torch.zeros(17, dtype=torch.int64),
        torch.zeros(12, dtype=torch.int64),
    )
    at = q.data_ptr()
    code = native.CODES["sparsemax"]
    arguments = (
        4, code, 0.0, 1.0, 1.0, False, None, 1, None, 1, 1, 1, 16, 16, 16, 16, at, at, at, strides.data_ptr(), 1,
        None, None, 0, None, None, 0, 0.0, 0, False, 1, None, None, None, 0,
        starts.data_ptr(), None, None, None, at, None, at, at, at, None, None, None,
    )  # fmt: skip
    with pytest.raises(ValueError, match="every array"):
        core.attention_backward(*arguments)
