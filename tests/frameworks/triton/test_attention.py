"""Attention by Triton kernels, in the interpreter, against the core in float64."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

pytest.importorskip("triton")

import torch
from interpreted import triton_kernels
from long_cases import represented

import regmax
from regmax.kernels.triton import attention as kernels
from regmax.kernels.triton import candidates as finding
from regmax.kernels.triton import launch
from regmax.resolver import resolve
from regmax.sparse_attention import accelerated
from regmax.sparse_attention.fused import describe
from regmax.sparse_attention.inputs import check_inputs

MAPPINGS = ["sparsemax", "fusedmax", "oscarmax,lam=0.01", "sqpnormmax", "entmax", "entmax,alpha=1.3"]
VALUES, GRADIENTS = 3e-6, 2e-5


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that small inputs fill."""
    monkeypatch.setattr(finding, "two_pass_block", lambda *_: (32, 32, 4))
    suits = finding.one_pass_block

    def small(d: int, dtype: torch.dtype, number: int) -> tuple[int, int, int] | None:
        return suits(d, torch.bfloat16, number) and (32, 16, 4)

    monkeypatch.setattr(finding, "one_pass_block", small)


@pytest.fixture
def interpreted() -> Iterator[None]:
    """CPU tensors go to the Triton kernels."""
    with triton_kernels():
        yield


def operands(heads: int, n: int, m: int, e: int, e_v: int, kv_heads: int | None = None) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(n * m + e)
    shapes = (heads, n, e), (kv_heads or heads, m, e), (kv_heads or heads, m, e_v)
    q, k, v = (torch.randn(1, *shape, generator=generator) for shape in shapes)
    return [1.5 * q, k, v]


def with_gradients(parts: list[torch.Tensor], *, interpret: bool, **options: Any) -> list[torch.Tensor]:
    """The output of attention, and the gradients of its operands and of tensors among the options."""
    dtype = torch.float32 if interpret else torch.float64
    learned = {
        name: value.to(dtype).requires_grad_()
        for name, value in options.items()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
    }
    leaves = [part.to(dtype).requires_grad_() for part in parts]
    mapping, strength = options.get("mapping"), learned.pop("lam", None)
    own = {**options, **learned}
    own.pop("lam", None)
    if strength is not None:
        own["mapping"] = regmax.FusedLasso(strength)
    with triton_kernels() if interpret else nullcontext():
        out = regmax.attention(*leaves, **own)
        direction = torch.cos(torch.arange(out.numel(), dtype=dtype)).reshape(out.shape)
        inputs = [*leaves, *learned.values(), *([] if strength is None else [strength])]
        grads = torch.autograd.grad(out, inputs, direction)
    assert mapping is not None
    return [out.detach(), *grads]


def compare(parts: list[torch.Tensor], **options: Any) -> None:
    """Output and gradients against the core in float64."""
    exact = with_gradients(parts, interpret=False, **options)
    found = with_gradients(parts, interpret=True, **options)
    torch.testing.assert_close(found[0].double(), exact[0], rtol=0, atol=VALUES)
    for grad, wanted in zip(found[1:], exact[1:], strict=True):
        torch.testing.assert_close(
            grad.double(), wanted, rtol=0, atol=GRADIENTS * max(1, float(wanted.abs().max()))
        )


# Scores are masked before they are mapped: two mappings also run without causality, all in `make test-long`.
CASES = [(mapping, is_causal) for mapping in MAPPINGS for is_causal in (True, False)]
ALWAYS = [(mapping, is_causal) for mapping, is_causal in CASES if is_causal or mapping in MAPPINGS[1:3]]


@pytest.mark.parametrize(("mapping", "is_causal"), represented(CASES, by=ALWAYS))
def test_every_mapping_agrees_with_the_core(mapping: str, is_causal: bool) -> None:
    compare(operands(2, 35, 29, 16, 16), mapping=mapping, is_causal=is_causal)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 40), (33, 1), (5, 199), (47, 137)])
def test_lengths(n: int, m: int) -> None:
    compare(operands(1, n, m, 16, 16), mapping="fusedmax")


@pytest.mark.parametrize("mapping", ["fusedmax", "oscarmax,lam=0.01", "entmax"])
def test_masked_keys_are_deleted(mapping: str) -> None:
    parts = operands(2, 20, 30, 16, 16)
    mask = torch.rand(1, 1, 20, 30, generator=torch.Generator().manual_seed(1)) < 0.6
    mask[..., 3, :] = False
    compare(parts, mapping=mapping, mask=mask, is_causal=True)
    compare(parts, mapping=mapping, mask=mask[..., :1, :])


def test_a_bias_is_added_and_has_a_gradient() -> None:
    parts = operands(2, 20, 30, 16, 16)
    bias = torch.randn(2, 20, 30, generator=torch.Generator().manual_seed(1))
    compare(parts, mapping="fusedmax", bias=bias)
    compare(parts, mapping="sparsemax", bias=bias[:, :1])


def test_grouped_heads_and_head_dimensions_that_are_padded() -> None:
    compare(operands(4, 18, 23, 20, 7, kv_heads=2), mapping="fusedmax", enable_gqa=True)


def test_strengths_per_head_are_learned() -> None:
    lam = torch.tensor([0.05, 0.2]).reshape(1, 2, 1, 1)
    compare(operands(2, 20, 25, 16, 16), mapping="fusedmax", lam=lam)


@pytest.fixture
def few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries with more than 8 candidates overflow, and two programs share them."""
    monkeypatch.setattr(launch, "TILES", [(4, 8)])
    monkeypatch.setattr(kernels, "WORKERS", 2)
    monkeypatch.setattr(kernels, "CHUNK", 16)
    monkeypatch.setattr(kernels, "SCAN", 8)


def with_flat_scores(*shape: int, kv_heads: int | None = None) -> list[torch.Tensor]:
    parts = operands(*shape, kv_heads=kv_heads)
    parts[0][:, 0] *= 0.05
    return parts


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_queries_that_overflow_are_computed_on_the_device(few_slots: None, mapping: str) -> None:
    compare(with_flat_scores(2, 3, 40, 16, 16), mapping=mapping)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("bias_rows", [20, 1])
def test_queries_that_overflow_know_masks_biases_groups_and_strengths(
    few_slots: None, deterministic: bool, bias_rows: int
) -> None:
    generator = torch.Generator().manual_seed(1)
    mask = torch.rand(2, 20, 20, generator=generator) < 0.8
    mask[:, 2] = False
    bias = 0.1 * torch.randn(2, bias_rows, 20, generator=generator)
    bias[:, :, 4] = -torch.inf
    lam = torch.tensor([0.01, 0.05]).reshape(1, 2, 1, 1)
    parts = with_flat_scores(2, 20, 20, 20, 7, kv_heads=1)
    torch.use_deterministic_algorithms(deterministic)
    try:
        compare(parts, mapping="fusedmax", mask=mask, bias=bias, lam=lam, is_causal=True, enable_gqa=True)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("deterministic", [False, True])
def test_the_operator_of_the_compiler_has_the_same_results(
    monkeypatch: pytest.MonkeyPatch, deterministic: bool
) -> None:
    monkeypatch.setattr(accelerated, "is_compiling", lambda: True)
    lam = torch.tensor([0.05, 0.2]).reshape(1, 2, 1, 1)
    bias = torch.randn(2, 1, 25, generator=torch.Generator().manual_seed(1))
    torch.use_deterministic_algorithms(deterministic)
    try:
        compare(operands(2, 9, 25, 20, 7), mapping="fusedmax", lam=lam, bias=bias)
    finally:
        torch.use_deterministic_algorithms(False)


def test_heads_with_offsets_beyond_32_bits_are_left_to_dense_attention(interpreted: None) -> None:
    few, many = torch.zeros(1, 1, 4, 16), torch.zeros(1, 1, 1, 16).expand(1, 1, 2**23, 16)
    for keys, suits in ((few, True), (many, False)):
        inputs = check_inputs(few, keys, keys, None, None, False, 0.0, None, False)
        assert accelerated.suits(inputs, resolve("sparsemax")) is suits


def test_gradients_of_a_query_with_nan_are_nan(interpreted: None) -> None:
    q, k, v = operands(1, 6, 20, 16, 16)
    q[0, 0, 2, 0] = torch.nan
    leaves = [part.requires_grad_() for part in (q, k, v)]
    out = regmax.attention(*leaves, mapping="fusedmax", is_causal=True)
    q_grad, k_grad, v_grad = torch.autograd.grad(out, leaves, torch.ones_like(out))
    assert q_grad[0, 0].isnan().all(-1).tolist() == [i == 2 for i in range(6)]
    # Query 2 sees keys 0 to 2.
    assert k_grad[0, 0].isnan().any(-1).tolist() == [j <= 2 for j in range(20)]
    assert v_grad[0, 0].isnan().any(-1).tolist() == [j <= 2 for j in range(20)]


def test_a_query_with_nan_gives_nan_and_no_other_does(interpreted: None) -> None:
    q, k, v = operands(1, 6, 20, 16, 16)
    clean = regmax.attention(q, k, v, mapping="fusedmax")
    q[0, 0, 2, 0] = torch.nan
    out = regmax.attention(q, k, v, mapping="fusedmax")
    assert out[0, 0, 2].isnan().all()
    keep = torch.arange(6) != 2
    assert torch.equal(out[0, 0, keep], clean[0, 0, keep])


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def test_deterministic_gradients_are_those_of_atomics(deterministic: None) -> None:
    compare(operands(2, 20, 25, 16, 16), mapping="fusedmax")


@pytest.mark.parametrize("shared", [False, True], ids=["a bias per head", "one bias"])
def test_owners_of_what_queries_share_add_to_it_in_order(
    few_slots: None, deterministic: None, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    """No atomics, no host reads, and every number that is added to belongs to one program."""
    bias = 0.1 * torch.randn(1 if shared else 4, 2, 12, generator=torch.Generator().manual_seed(1))
    parts = with_flat_scores(4, 2, 12, 16, 16, kv_heads=2)
    parts[0] *= 0.05
    monkeypatch.setattr(torch.Tensor, "nonzero", None)
    monkeypatch.setattr(torch.Tensor, "item", None)
    compare(parts, mapping="fusedmax", bias=bias, enable_gqa=True)
    launches = kernels._owners(12, 3, 2, bias, deterministic=True)  # of 3 queries in each of 4 heads
    assert [owners for owners, _, _ in launches] == [2, 3]
    for owners, (span, length, step), added in launches:
        queries = [list(range(o * span, min(o * span + length, 12), step)) for o in range(owners)]
        assert sorted(query for own in queries for query in own) == list(range(12))
        # Two heads share keys and values; the queries with one number share a bias.
        owner = {query: o for o, own in enumerate(queries) for query in own}
        for query in range(12):
            for other in range(12):
                if added["WANTS_KEYS"] and query // 6 == other // 6:
                    assert owner[query] == owner[other]
                if added["WANTS_BIAS"] and query % 3 == other % 3:
                    assert owner[query] == owner[other]


def found_candidates(parts: list[torch.Tensor], mapping: str, is_causal: bool) -> finding.Weights:
    with triton_kernels():
        inputs = check_inputs(*parts, None, None, is_causal, 0.0, None, False)
        problem, given = describe(inputs, resolve(mapping), recompute=False)
        return finding.candidates(problem, given, *finding.strengths(problem, given))


@pytest.mark.parametrize(
    "mapping", ["sparsemax", "fusedmax,lam=0.02", "sqpnormmax", "entmax", "entmax,alpha=1.3"]
)
@pytest.mark.parametrize("is_causal", [False, True], ids=["all", "causal"])
def test_one_pass_finds_the_candidates_of_two(
    monkeypatch: pytest.MonkeyPatch, mapping: str, is_causal: bool
) -> None:
    """Also of queries that it leaves to two passes: with three candidates in a bucket, NaN or infinities."""
    # As many buckets as in two passes have the same bound.
    monkeypatch.setattr(finding, "one_pass_block", lambda *_: (32, 32, 4))
    parts = operands(2, 70, 75, 16, 16)
    parts[0] *= torch.linspace(0.2, 4, 70)[:, None]
    parts[0][0, 0, 5, 0], parts[0][0, 1, 69, 2] = torch.nan, torch.inf
    lists: list[int] = []
    run = finding.run

    def recorded(kernel: Any, x: torch.Tensor, **options: Any) -> Any:
        launch = run(kernel, x, **options)
        if kernel is not finding.attention_candidates:
            return launch
        # The launch's sizes of lists come after the list, which has one entry per query.
        return lambda grid, *given, **constants: (
            lists.extend(given[14].tolist() if constants["LISTED"] else []),
            launch(grid, *given, **constants),
        )

    monkeypatch.setattr(finding, "run", recorded)
    once = found_candidates(parts, mapping, is_causal)
    assert 2 <= sum(lists) <= 130
    monkeypatch.setattr(finding, "one_pass_block", lambda *_: None)
    twice = found_candidates(parts, mapping, is_causal)
    assert len(lists) == 2
    assert torch.equal(once.counts, twice.counts)
    assert torch.equal(once.kept, twice.kept)
    assert (once.counts < 0).sum() == 2
    in_order = mapping.startswith("fusedmax")
    for row in ((once.counts > 0) & (once.counts <= 128)).nonzero()[:, 0]:
        size = int(once.counts[row])
        order = once.columns[row, :size].argsort()
        assert torch.equal(once.columns[row, :size][order], twice.columns[row, :size])
        torch.testing.assert_close(
            once.values[row, :size][order], twice.values[row, :size], rtol=0, atol=1e-5
        )
        if in_order:
            assert torch.equal(order, torch.arange(size))
            assert torch.equal(once.ranks[row, :size], twice.ranks[row, :size])


@pytest.mark.parametrize("overflow", [False, True])
def test_dropout_drops_weights_and_scales_the_others(
    interpreted: None, request: pytest.FixtureRequest, overflow: bool
) -> None:
    if overflow:
        request.getfixturevalue("few_slots")
    q, k, _ = operands(1, 6 if overflow else 30, 40, 16, 16)
    q *= 0.03 if overflow else 0.3
    v = torch.eye(40).reshape(1, 1, 40, 40).requires_grad_()
    y = regmax.attention(q, k, v, mapping="sparsemax")
    torch.manual_seed(0)
    state = torch.get_rng_state()
    regmax.attention(q, k, v, mapping="sparsemax")
    assert torch.equal(torch.get_rng_state(), state)
    out = regmax.attention(q, k, v, mapping="sparsemax", dropout_p=0.4)
    kept = out > 0
    torch.testing.assert_close(out[kept], y[kept] / 0.6)
    share = float(kept.sum() / (y > 0).sum())
    assert 0.45 < share < 0.75
    direction = torch.ones_like(out)
    (v_grad,) = torch.autograd.grad(out, v, direction)
    torch.testing.assert_close(v_grad[0, 0, :, 0], out.detach()[0, 0].sum(0), rtol=0, atol=1e-5)


def test_halves_are_read_by_the_kernels() -> None:
    parts = [part.half() for part in operands(1, 16, 33, 32, 16)]
    with triton_kernels():
        out = regmax.attention(*parts, mapping="fusedmax")
    assert out.dtype == torch.float16
    expected = regmax.attention(*(part.double() for part in parts), mapping="fusedmax")
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=3e-3)
