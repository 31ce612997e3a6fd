"""The behaviour of attention apart from its values: edge cases, types, dropout, determinism, error messages."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from attention_reference import MAPPINGS, compose, draw, gradients, make_mask
from torch.nn.functional import scaled_dot_product_attention

import regmax
from regmax.kernels import native

SPARSE = ("sparsemax", "fusedmax", "oscarmax", "sqpnormmax", "entmax")


@pytest.mark.parametrize("mapping", ["softmax", *SPARSE])
def test_queries_without_keys_give_zeros_and_no_gradient(mapping: str) -> None:
    q, k, v = draw()
    mask = torch.ones(2, 1, 33, 47, dtype=torch.bool)
    mask[0, :, 5] = False
    mask[1] = False
    out = regmax.attention(q, k, v, mapping=mapping, mask=mask)
    assert (out[0, :, 5] == 0).all()
    assert (out[1] == 0).all()
    q_grad, k_grad, v_grad = gradients(out, (q, k, v))
    assert (q_grad[0, :, 5] == 0).all()
    assert all((grad[1] == 0).all() and grad.isfinite().all() for grad in (q_grad, k_grad, v_grad))


@pytest.mark.parametrize("mapping", ["softmax", *SPARSE])
def test_padding_that_keeps_nothing_gives_zeros(mapping: str) -> None:
    q, k, v = draw()
    mask = torch.zeros(2, 1, 1, 47, dtype=torch.bool)
    out = regmax.attention(q, k, v, mapping=mapping, mask=mask)
    assert (out == 0).all()
    assert all((grad == 0).all() for grad in gradients(out, (q, k, v)))


@pytest.mark.parametrize(
    ("batch", "heads", "queries", "keys", "e", "e_v"),
    [
        ((0,), 2, 9, 9, 8, 8),
        ((2,), 0, 9, 9, 8, 8),
        ((2,), 2, 0, 9, 8, 8),
        ((2,), 2, 9, 0, 8, 8),
        ((2,), 2, 9, 9, 0, 8),
    ],
)
def test_empty_dimensions_are_no_exception(
    batch: tuple[int, ...], heads: int, queries: int, keys: int, e: int, e_v: int
) -> None:
    inputs = draw(batch=batch, heads=heads, queries=queries, keys=keys, e=e, e_v=e_v)
    out = regmax.attention(*inputs, mapping="fusedmax")
    assert out.shape == (*batch, heads, queries, e_v)
    assert out.isfinite().all()
    out.sum().backward()


@pytest.mark.parametrize("mapping", SPARSE)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_query_that_is_not_finite_gives_nan_and_spoils_no_other(mapping: str, bad: float) -> None:
    q, k, v = draw()
    with torch.no_grad():
        q[0, 0, 4, 0] = bad
    out = regmax.attention(q, k, v, mapping=mapping)
    wanted, _ = compose(q, k, v, mapping)
    assert out[0, 0, 4].isnan().all()
    assert torch.equal(out.isnan(), wanted.isnan())
    q_grad, k_grad, v_grad = gradients(out, (q, k, v))
    assert q_grad[0, 0, 4].isnan().all()
    assert all(grad[1].isfinite().all() for grad in (q_grad, k_grad, v_grad))
    assert q_grad[0, 0, 5:].isfinite().all()


def test_leading_dimensions_broadcast_or_may_be_missing(fused_calls: list[str]) -> None:
    q, k, v = draw(batch=(2, 3))
    out = regmax.attention(q, k[:, :1], v[0], mapping="sparsemax")
    wanted, _ = compose(q, k[:, :1], v[0], "sparsemax")
    assert torch.allclose(out, wanted, atol=1e-5)
    alone = regmax.attention(q[0, 0, 0], k[0, 0, 0], v[0, 0, 0], mapping="sparsemax")
    assert torch.allclose(alone, regmax.attention(q, k, v, mapping="sparsemax")[0, 0, 0])
    assert len(fused_calls) == 3


def test_transposed_heads_are_taken_as_they_are(fused_calls: list[str]) -> None:
    q, k, v = (x.transpose(-3, -2).contiguous().transpose(-3, -2) for x in draw())
    assert not q.is_contiguous()
    out = regmax.attention(q, k, v, mapping="fusedmax")
    assert fused_calls
    assert torch.equal(
        out, regmax.attention(q.contiguous(), k.contiguous(), v.contiguous(), mapping="fusedmax")
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(dtype: torch.dtype, fused_calls: list[str]) -> None:
    inputs = draw(dtype=dtype)
    out = regmax.attention(*inputs, mapping="fusedmax")
    wanted = regmax.attention(*(x.float() for x in inputs), mapping="fusedmax").to(dtype)
    assert out.dtype == dtype
    assert torch.equal(out, wanted)
    assert all(grad.dtype == dtype for grad in gradients(out, inputs))
    assert len(fused_calls) == 2


@pytest.mark.parametrize("mapping", [*SPARSE, regmax.FusedLasso(lam=1.5)], ids=str)
@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("spread", [0.02, 2.0])
def test_the_number_of_threads_changes_no_bit(mapping: Any, heads: int, spread: float) -> None:
    inputs = draw(batch=(), heads=heads, queries=150, keys=300, e=16, e_v=16, spread=spread)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            out = regmax.attention(*inputs, mapping=mapping, is_causal=True)
            results.append((out, *gradients(out, inputs)))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("name", ["avx512", "avx2", "baseline"])
def test_every_instruction_set_computes_attention(name: str) -> None:
    inputs = draw(queries=70, keys=130, e=24, e_v=40, dtype=torch.float64)
    before = native.instruction_set()
    try:
        try:
            native.use_instruction_set(name)
        except ValueError:
            pytest.skip(f"this machine has no {name}")
        for mapping in MAPPINGS:
            for dtype, tolerance in ((torch.float64, 1e-11), (torch.float32, 1e-5)):
                tensors = [x.detach().to(dtype) for x in inputs]
                out = regmax.attention(*tensors, mapping=mapping, is_causal=True)
                assert torch.allclose(out, compose(*tensors, mapping, is_causal=True)[0], atol=tolerance)
    finally:
        native.use_instruction_set(before)


def test_softmax_is_torch_s_own() -> None:
    q, k, v = draw(e_v=8)
    mask, bias = make_mask("right", 33, 47), torch.randn(4, 33, 47)
    plain = regmax.attention(q, k, v, mapping="softmax", is_causal=True)
    assert torch.equal(plain, scaled_dot_product_attention(q, k, v, is_causal=True))
    wanted, y = compose(q, k, v, "softmax", mask=mask, bias=bias, is_causal=True)
    for mapping in ("softmax", regmax.NegativeEntropy(), regmax.softmax):
        out = regmax.attention(q, k, v, mapping=mapping, mask=mask, bias=bias, is_causal=True)
        assert torch.allclose(out, wanted, atol=1e-5)
    _, weights = regmax.attention(
        q, k, v, mapping="softmax", mask=mask, bias=bias, is_causal=True, return_weights=True
    )
    assert torch.allclose(weights, y, atol=1e-6)


def test_gamma_and_scale_act_on_the_scores(fused_calls: list[str]) -> None:
    q, k, v = draw(dtype=torch.float64)
    cold = regmax.attention(q, k, v, mapping=partial(regmax.fusedmax, lam=0.2, gamma=0.5))
    scaled = regmax.attention(q, k, v, mapping=regmax.FusedLasso(lam=0.2), scale=2 / 8**0.5)
    assert torch.allclose(cold, scaled, atol=1e-12)
    assert fused_calls == ["fusedmax", "fusedmax"]


def test_functions_of_other_libraries_receive_dense_scores(fused_calls: list[str]) -> None:
    q, k, v = draw()
    softmax = regmax.attention(q, k, v, mapping=torch.softmax)
    assert torch.allclose(softmax, regmax.attention(q, k, v, mapping="softmax"), atol=1e-5)
    assert not fused_calls


@pytest.mark.parametrize("spread", [0.02, 2.0])
def test_dropout_drops_weights_and_scales_the_others(spread: float, fused_calls: list[str]) -> None:
    q, k, v = draw(queries=200, keys=64, e_v=64, spread=spread, dtype=torch.float64)
    v = (
        torch.eye(64, dtype=torch.float64).expand(2, 4, 64, 64).requires_grad_()
    )  # the output is the dropped weights
    torch.manual_seed(0)
    out, weights = regmax.attention(q, k, v, mapping="sparsemax", dropout_p=0.25, return_weights="sparse")
    y = weights.to_dense()
    kept = out != 0
    share = kept.sum() / (y != 0).sum()
    assert abs(float(share) - 0.75) < 0.03
    assert torch.allclose(out[kept], y[kept] / 0.75)
    torch.manual_seed(0)
    again = regmax.attention(q, k, v, mapping="sparsemax", dropout_p=0.25)
    assert torch.equal(out, again)
    _, y_dense = compose(q, k, v, "sparsemax")
    factors = torch.where(kept, 1 / 0.75, 0.0)
    pairs = gradients(out, (q, k, v)), gradients(y_dense * factors @ v, (q, k, v))
    for found, wanted in zip(*pairs, strict=True):
        assert torch.allclose(found, wanted, atol=1e-12)
    assert len(fused_calls) == 2


def test_dropping_everything_gives_zeros() -> None:
    assert (regmax.attention(*draw(), mapping="sparsemax", dropout_p=1.0) == 0).all()


def test_second_derivatives_under_dropout_are_refused() -> None:
    inputs = draw()
    out = regmax.attention(*inputs, dropout_p=0.5)
    with pytest.raises(NotImplementedError, match="dropout_p to 0"):
        torch.autograd.grad(out.sum(), inputs, create_graph=True)


def test_attention_compiles_and_transforms() -> None:
    q, k, v = draw(queries=16, keys=16)
    mask = make_mask("right", 16, 16)
    run = partial(regmax.attention, mapping="fusedmax", mask=mask, is_causal=True)
    wanted = run(q, k, v)
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(q, k, v), wanted, atol=1e-6)
    single = partial(regmax.attention, mapping="fusedmax")
    mapped = torch.func.vmap(single)(q, k, v)
    assert torch.allclose(mapped, single(q, k, v), atol=1e-5)
    grad = torch.func.grad(lambda x: run(x, k, v).sum())(q)
    assert torch.allclose(grad, torch.autograd.grad(wanted.sum(), q)[0], atol=1e-5)


def test_nothing_quadratic_is_saved_for_backward() -> None:
    q, k, v = draw(batch=(), heads=1, queries=512, keys=512, e=16, e_v=16, spread=6.0)
    sizes: list[int] = []

    def record(x: torch.Tensor) -> torch.Tensor:
        sizes.append(x.numel())
        return x

    with torch.autograd.graph.saved_tensors_hooks(record, lambda x: x):
        regmax.attention(q, k, v, mapping="fusedmax")
    assert 0 < max(sizes) < 512 * 512 / 16


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"q": [[0.0]]}, TypeError, "needs torch tensors. Got list for q"),
        (
            {"q": torch.zeros(3, 4, dtype=torch.int64)},
            TypeError,
            "floating-point tensors. Got torch.int64 for q",
        ),
        ({"q": torch.zeros(4)}, ValueError, r"Got \(4,\) for q"),
        ({"k": torch.zeros(3, 4, dtype=torch.float64)}, TypeError, "one type and one device"),
        ({"k": torch.zeros(3, 5)}, ValueError, "one head dimension. Got 4 and 5"),
        ({"v": torch.zeros(2, 4)}, ValueError, "one length. Got 3 and 2"),
        (
            {"q": torch.zeros(2, 3, 4), "k": torch.zeros(5, 3, 4)},
            ValueError,
            "batch dimensions that broadcast",
        ),
        ({"enable_gqa": True}, ValueError, "needs heads"),
        (
            {
                "q": torch.zeros(3, 3, 4),
                "k": torch.zeros(2, 3, 4),
                "v": torch.zeros(2, 3, 4),
                "enable_gqa": True,
            },
            ValueError,
            "Got 3, 2 and 2 heads",
        ),
        (
            {"mask": torch.zeros(3, 3)},
            TypeError,
            "must be boolean, True = keep. Got torch.float32: pass .* `bias`",
        ),
        (
            {"mask": torch.ones(2, 3, dtype=torch.bool)},
            ValueError,
            r"broadcast to the scores' shape \(3, 3\)",
        ),
        ({"mask": [True]}, TypeError, "must be a tensor. Got list"),
        ({"bias": torch.ones(3, 3, dtype=torch.bool)}, TypeError, "must be floating-point. Got torch.bool"),
        ({"dropout_p": 1.5}, ValueError, "from 0 to 1. Got 1.5"),
        ({"mapping": "hardmax"}, ValueError, "must be one of softmax, .* Got 'hardmax'"),
        ({"mapping": 3}, TypeError, "a name, a regularizer, a module or a callable. Got int"),
        ({"return_weights": "csr"}, ValueError, "a boolean or 'sparse'. Got 'csr'"),
    ],
)
def test_bad_arguments_are_named(changes: dict[str, Any], error: type[Exception], match: str) -> None:
    arguments = {"q": torch.zeros(3, 4), "k": torch.zeros(3, 4), "v": torch.zeros(3, 4), **changes}
    tensors = [arguments.pop(name) for name in "qkv"]
    with pytest.raises(error, match=match):
        regmax.attention(*tensors, **arguments)


@pytest.mark.parametrize("layout", ["nested", "jagged", "sparse"])
def test_tensors_that_are_not_dense_are_an_error(layout: str) -> None:
    rows = [torch.randn(3, 4), torch.randn(2, 4)]
    if layout == "sparse":
        q = torch.randn(2, 3, 4).to_sparse()
    else:
        q = torch.nested.nested_tensor(rows, layout=torch.jagged if layout == "jagged" else torch.strided)
    with pytest.raises(TypeError, match="needs a dense tensor"):
        regmax.attention(q, q, q)
