"""Attention under `torch.compile`, under transforms inside it, and under autocast."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from attention_reference import compose, draw, gradients, make_mask, relative_error
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import regmax
from regmax.resolver import Resolved

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "padding": {"mask": make_mask("right", 33, 47)},
    "rows": {"mask": make_mask("rows", 33, 47)},
    "gqa": {"enable_gqa": True, "mask": make_mask("left", 33, 47)},
}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(function: Any, **options: Any) -> Any:
    return torch.compile(function, fullgraph=True, backend="aot_eager", **options)


@pytest.mark.parametrize(
    ("mapping", "kind"),
    [
        ("sparsemax", "plain"),
        ("fusedmax", "causal"),
        ("fusedmax", "padding"),
        ("oscarmax", "rows"),
        ("sqpnormmax", "gqa"),
        (regmax.SquaredPNorm(1.2), "causal"),
    ],
    ids=str,
)
def test_the_compiled_call_is_the_eager_one(mapping: Any, kind: str, fused_calls: list[str]) -> None:
    run = partial(regmax.attention, mapping=mapping, **OPTIONS[kind])
    program = compiled(run)
    for spread in (0.02, 2.0):  # dense weights do not fit, and are recomputed
        inputs = draw(spread=spread, kv_heads=2 if kind == "gqa" else 4)
        out, wanted = program(*inputs), run(*inputs)
        assert torch.equal(out, wanted)
        for found, grad in zip(gradients(out, inputs), gradients(wanted, inputs), strict=True):
            assert relative_error(found, grad) < 1e-5
        with torch.no_grad():
            assert torch.equal(program(*inputs), wanted)
    assert len(fused_calls) == 6


def test_one_program_serves_all_shapes(fused_calls: list[str]) -> None:
    run = partial(regmax.attention, mapping="fusedmax", is_causal=True)
    program = compiled(run, dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for queries, keys in ((33, 47), (40, 40), (100, 301), (9, 12)):
            inputs = draw(queries=queries, keys=keys, e=16, e_v=16)
            out = program(*inputs)
            wanted = run(*inputs)
            assert torch.equal(out, wanted)
            for found, grad in zip(gradients(out, inputs), gradients(wanted, inputs), strict=True):
                assert relative_error(found, grad) < 1e-5
    assert len(fused_calls) == 8


@pytest.mark.parametrize("shape", [(), (4, 1, 1), (4, 33, 1)], ids=str)
def test_learned_strengths_and_a_bias_compile(shape: tuple[int, ...], fused_calls: list[str]) -> None:
    inputs = draw(dtype=torch.float64)
    lam = torch.full(shape, 0.1, dtype=torch.float64, requires_grad=True)
    gamma = torch.full(shape, 1.5, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(33, 47, dtype=torch.float64, requires_grad=True)

    def run(q: Tensor, k: Tensor, v: Tensor, lam: Tensor, gamma: Tensor, bias: Tensor) -> Any:
        mapping = Resolved(regmax.FusedLasso(lam=lam), gamma)
        return regmax.attention(q, k, v, mapping=mapping, bias=bias, return_weights=True)

    learned = (*inputs, lam, gamma, bias)
    results = []
    for call in (run, compiled(run)):
        out, y = call(*learned)
        results.append((out, y, *gradients(torch.cat([out, y], -1), learned)))
    for found, wanted in zip(*results, strict=True):
        assert torch.allclose(found, wanted, atol=1e-12)
    assert len(fused_calls) == 2


def test_annealing_does_not_recompile_at_every_step(fused_calls: list[str]) -> None:
    inputs, module = draw(), regmax.nn.Fusedmax()
    # torch 2.9 makes constants of numbers that are multiplied, such as an annealed lam (docs/support.md).
    traced = not torch.__version__.startswith("2.9.")
    schedule = regmax.nn.AnnealGamma(module, start=4.0, end=1.0, steps=12, constant_penalty=traced)
    program = compiled(partial(regmax.attention, mapping=module))
    with torch.no_grad():
        for step in range(12):
            with torch._dynamo.config.patch(error_on_recompile=step > 1):
                assert torch.allclose(program(*inputs), regmax.attention(*inputs, mapping=module), atol=1e-6)
            schedule.step()
    assert len(fused_calls) == 24


def test_modules_sparse_weights_and_dropout_compile(fused_calls: list[str]) -> None:
    q, k, v = draw()
    module = regmax.nn.Fusedmax(learnable=True)
    program = compiled(lambda: regmax.attention(q, k, v, mapping=module))
    parameters = tuple(module.parameters())
    out, wanted = program(), regmax.attention(q, k, v, mapping=module)
    for found, grad in zip(gradients(out, parameters), gradients(wanted, parameters), strict=True):
        assert relative_error(found, grad) < 1e-4
    dropped = compiled(partial(regmax.attention, mapping="sparsemax", dropout_p=0.5))
    torch.manual_seed(0)
    first = dropped(q, k, v)
    second = dropped(q, k, v)
    assert not torch.equal(first, second)
    # The expectation over the dropped weights is the output without dropout.
    mean = torch.stack([dropped(q, k, v) for _ in range(400)]).mean(0)
    assert (mean - regmax.attention(q, k, v, mapping="sparsemax")).abs().mean() < 0.1
    assert len(fused_calls) > 400


@pytest.mark.skipif(not torch._inductor.config.cpp.cxx, reason="inductor needs a compiler")
def test_inductor_compiles_both_passes(fused_calls: list[str]) -> None:
    run = partial(regmax.attention, mapping="fusedmax", is_causal=True, mask=make_mask("right", 33, 47))
    inputs = draw(e=16, e_v=16)
    out, wanted = torch.compile(run, fullgraph=True)(*inputs), run(*inputs)
    assert torch.equal(out, wanted)
    for found, grad in zip(gradients(out, inputs), gradients(wanted, inputs), strict=True):
        assert torch.equal(found, grad)
    assert len(fused_calls) == 2


def test_transforms_inside_a_compiled_function_are_dense(fused_calls: list[str]) -> None:
    q, k, v = draw(queries=16, keys=16)
    single = partial(regmax.attention, mapping="fusedmax")
    mapped = compiled(lambda *x: torch.func.vmap(single)(*x))(q, k, v)
    assert torch.allclose(mapped, single(q, k, v), atol=1e-5)
    assert len(fused_calls) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_returns_what_torch_s_attention_returns(dtype: torch.dtype, fused_calls: list[str]) -> None:
    inputs = draw(dtype=dtype, spread=2.0)
    double = [x.detach().double().requires_grad_() for x in inputs]
    wanted, dense = compose(*double, "fusedmax")  # type: ignore[misc]
    with torch.autocast("cpu", torch.bfloat16):
        out, y = regmax.attention(*inputs, mapping="fusedmax", return_weights=True)
        compiled_out = compiled(partial(regmax.attention, mapping="fusedmax"))(*inputs)
        assert out.dtype == scaled_dot_product_attention(*inputs).dtype == torch.bfloat16
    assert y.dtype == torch.bfloat16
    assert torch.equal(compiled_out, out)
    assert relative_error(out, wanted) < 0.01
    assert relative_error(y, dense) < 0.01
    for found, grad in zip(gradients(out, inputs), gradients(wanted, tuple(double)), strict=True):
        assert found.dtype == dtype
        assert relative_error(found, grad) < 0.02
    assert len(fused_calls) == 2


def test_autocast_leaves_double_precision_alone(fused_calls: list[str]) -> None:
    inputs = draw(dtype=torch.float64)
    with torch.autocast("cpu", torch.bfloat16):
        out = regmax.attention(*inputs, mapping="fusedmax")
    assert out.dtype == torch.float64
    assert torch.allclose(out, compose(*inputs, "fusedmax")[0], atol=1e-12)
    assert fused_calls
