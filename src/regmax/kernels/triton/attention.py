"""Attention on the support: forward and backward passes on contiguous tensors of an accelerator.

`Problem` and `Operands` are those of the core; head dimensions are padded to a power of two from 16 on, and types are
float16, bfloat16 or float32.
"""

from math import prod
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from regmax.kernels.native.attention import Operands, Problem
from regmax.kernels.triton.attention_kernels import (
    attention_candidates,
    attention_gather,
    attention_key_grads,
    attention_products,
    dropout_of_queries,
    dropout_of_slots,
)
from regmax.kernels.triton.launch import kind, run, tile
from regmax.kernels.triton.long_attention import long_attention, long_attention_grads
from regmax.kernels.triton.row_kernels import row_weights

# Queries and keys of a block by head dimension, and warps: the largest without a stack (docs/gpu.md).
BLOCKS = {16: (64, 32, 8), 32: (64, 32, 8), 64: (64, 32, 8), 128: (64, 32, 8), 256: (32, 32, 8)}
QUERIES = 4  # of a program that gathers: 16 would spill registers
WORKERS = (
    256  # programs that share the queries with more candidates than slots, each with scratch for one row
)
CHUNK = 1024  # scores that such a program maps at a time
# Without a limit NVIDIA's assembler prefers more programs at once to registers, and spills some.
LONG_OPTIONS = {"num_warps": 8} if torch.version.hip else {"num_warps": 8, "maxnreg": 224}
SCAN = 128  # scores of a chunk in the gradients of such a query
_EPS = 2.0**-23


class Weights(NamedTuple):
    """The candidates of every query, in slots: weights, keys and ranks (queries, slots), and two numbers per query."""

    values: Tensor
    columns: Tensor
    ranks: Tensor
    counts: Tensor  # more than there are slots: overflow; -1: NaN
    kept: Tensor

    @property
    def refused(self) -> Tensor:
        """The queries whose gradients take the dense path in deterministic mode. Their number is read by the host."""
        slots = self.values.shape[1]
        return ((self.counts > slots) | (self.counts < 0)).nonzero()[:, 0]


def strengths(problem: Problem, operands: Operands) -> tuple[Tensor, Tensor]:
    """theta and gamma of every query."""
    q = operands.q
    heads, n = prod(q.shape[:-2]), q.shape[-2]

    def per_query(number: float, given: Tensor | None) -> Tensor:
        if given is None:
            return torch.full((heads * n,), number, dtype=torch.float32, device=q.device)
        value = given.detach().to(device=q.device, dtype=torch.float32)
        return value.expand(heads, n).reshape(-1).contiguous()

    return per_query(problem.theta, operands.thetas), per_query(problem.gamma, operands.gammas)


def forward(problem: Problem, operands: Operands, seed: Tensor) -> tuple[Tensor, Weights]:
    """The output in float32, and the weights. Nothing is read by the host."""
    q, k, v, bias, _, _ = operands
    n, m, d = q.shape[-2], k.shape[-2], q.shape[-1]
    heads = prod(q.shape[:-2])
    count, groups = heads * n, heads // prod(k.shape[:-2])
    rows, slots = tile(m)
    theta, gamma = strengths(problem, operands)
    # No views of shared memory: it would outlive the scratch tensors, and an operator must not return them.
    value, weights = (q.new_empty((count, slots), dtype=torch.float32) for _ in range(2))
    ordered = torch.empty_like(value) if problem.kernel == "oscarmax" else value
    column, rank = (q.new_empty((count, slots), dtype=torch.int32) for _ in range(2))
    counts, kept = (q.new_empty(count, dtype=torch.int32) for _ in range(2))
    queries, keys, warps = BLOCKS[d]
    mask = problem.mask
    number = kind(problem.kernel, problem.theta if operands.thetas is None else None)
    run(attention_candidates, q, num_warps=warps)(
        (triton.cdiv(n, queries), heads), q, k, q if mask is None else mask, q if bias is None else bias,
        counts if mask is None else problem.mask_slices, counts if bias is None else problem.bias_slices,
        theta, gamma,
        value, column, rank, counts, kept, n, m, groups, problem.scale,
        *_steps(mask), *_steps(bias), M=queries, B=keys, D=d, C=slots, KIND=number, CAUSAL=problem.is_causal,
        HAS_MASK=mask is not None, HAS_BIAS=bias is not None, EPS=_EPS,
    )  # fmt: skip
    run(row_weights, q)(
        (triton.cdiv(count, rows),), value, ordered, column, rank, counts, kept, theta, weights, count, m, 1,
        R=rows, C=slots, KIND=number, SCATTER=False, EPS=_EPS,
    )  # fmt: skip
    out = q.new_empty((*q.shape[:-1], v.shape[-1]), dtype=torch.float32)
    run(attention_gather, q)(
        (triton.cdiv(count, QUERIES),), weights, column, counts, v, _factors(problem, column, seed), out,
        count, n, m, groups, R=QUERIES, D=v.shape[-1], C=slots, DROPOUT=problem.dropout_p > 0,
    )  # fmt: skip
    if m > slots:
        inputs, options = _long_arguments(problem, operands, theta, gamma, counts, seed)
        (score,), place, sums = _scratch(problem, q, m, 1)
        run(long_attention, q, **LONG_OPTIONS)(
            (min(count, WORKERS),), q, k, v, *inputs, score, place, sums, out, count, n, m, groups,
            problem.scale, problem.dropout_p, *_steps(mask), *_steps(bias),
            B=keys_at_once(d, v.shape[-1]), D=d, E=v.shape[-1], C=slots, KIND=number, **options,
        )  # fmt: skip
    return out, Weights(weights, column, rank, counts, kept)


def backward(
    problem: Problem,
    operands: Operands,
    weights: Weights,
    out_grad: Tensor,
    seed: Tensor,
    *,
    wants_bias: bool,
    deterministic: bool,
) -> Operands:
    """The gradients of all operands in float32; in deterministic mode without the queries that are `refused`."""
    q, k, v, bias, thetas, gammas = operands
    n, m, d, e = q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1]
    heads = prod(q.shape[:-2])
    count, groups = heads * n, heads // prod(k.shape[:-2])
    _, slots = tile(m)
    theta, gamma = strengths(problem, operands)
    score_grad = q.new_zeros((count, slots), dtype=torch.float32)
    q_grad = torch.empty_like(q, dtype=torch.float32)
    k_grad, v_grad = (torch.zeros_like(x, dtype=torch.float32) for x in (k, v))
    theta_grad, gamma_grad = (q.new_empty(count, dtype=torch.float32) for _ in range(2))
    number = kind(problem.kernel, problem.theta if thetas is None else None)
    dropout = {"DROPOUT": problem.dropout_p > 0}
    factors = _factors(problem, weights.columns, seed)
    run(attention_products, q)(
        (triton.cdiv(count, QUERIES),), q, k, v, out_grad, *weights[:5], theta, gamma, factors,
        score_grad, q_grad, k_grad, v_grad, theta_grad, gamma_grad,
        count, n, m, groups, problem.scale,
        R=QUERIES, D=d, E=e, C=slots, KIND=number, ATOMIC=not deterministic, **dropout,
    )  # fmt: skip
    key = (torch.arange(count, device=q.device)[:, None] // n // groups) * m + weights.columns
    used = weights.values > 0
    if deterministic:
        entries, starts = _sorted_entries(key, used, prod(k_grad.shape[:-1]))
        run(attention_key_grads, q)(
            (prod(k_grad.shape[:-1]),), q, out_grad, weights.values, score_grad, entries, starts, factors,
            k_grad, v_grad, problem.scale, D=d, E=e, C=slots, **dropout,
        )  # fmt: skip
    bias_grad = None
    if wants_bias and bias is not None and problem.bias_slices is not None:
        bias_grad = _bias_grad(
            bias, problem.bias_slices, weights.columns, torch.where(used, score_grad, 0), n
        )
    if not deterministic:
        inputs, options = _long_arguments(problem, operands, theta, gamma, weights.counts, seed)
        scratch, place, sums = _scratch(problem, q, m, 5 if problem.kernel == "oscarmax" else 3)
        run(long_attention_grads, q, **LONG_OPTIONS)(
            (min(count, WORKERS),), q, k, v, out_grad, *inputs, *scratch[:3], scratch[3:], place, sums,
            q_grad, k_grad, v_grad, q_grad if bias_grad is None else bias_grad, theta_grad, gamma_grad,
            count, n, m, groups, problem.scale, problem.dropout_p, *_steps(problem.mask), *_steps(bias),
            B=keys_at_once(d, e), SCAN=SCAN, D=d, E=e, C=slots, KIND=number,
            WANTS_BIAS=bias_grad is not None, **options,
        )  # fmt: skip
    grads = (
        None if given is None else grad.reshape(heads, n).double().sum_to_size(given.shape)
        for grad, given in ((theta_grad, thetas), (gamma_grad, gammas))
    )
    return Operands(q_grad, k_grad, v_grad, bias_grad, *grads)


def dropout_of(problem: Problem, queries: Tensor, m: int, seed: Tensor) -> Tensor:
    """The factors of dropout for the scores of some queries, by number: (queries, m), the same as in the kernels."""
    out = torch.empty((len(queries), m), dtype=torch.float32, device=queries.device)
    run(dropout_of_queries, queries)((len(queries),), queries, seed, out, m, problem.dropout_p, B=256)
    return out


def _factors(problem: Problem, columns: Tensor, seed: Tensor) -> Tensor:
    """The factors of dropout for all candidates; without dropout any tensor serves."""
    if problem.dropout_p == 0:
        return columns
    out = torch.empty_like(columns, dtype=torch.float32)
    size, slots = out.numel(), out.shape[1]
    run(dropout_of_slots, columns)(
        (triton.cdiv(size, 256),), columns, seed, out, size, problem.dropout_p, B=256, C=slots
    )
    return out


def keys_at_once(d: int, e: int) -> int:
    """How many keys a program of `long_attention` reads at a time."""
    return max(8, 2048 // max(d, e))


def _long_arguments(
    problem: Problem, operands: Operands, theta: Tensor, gamma: Tensor, counts: Tensor, seed: Tensor
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The inputs that `long_attention` and its gradients share, and their constants."""
    q, mask, bias = operands.q, problem.mask, operands.bias
    inputs = (
        q if mask is None else mask,
        q if bias is None else bias,
        counts if problem.mask_slices is None else problem.mask_slices,
        counts if problem.bias_slices is None else problem.bias_slices,
        theta,
        gamma,
        counts,
        seed,
    )
    options = {
        "CHUNK": CHUNK,
        "CAUSAL": problem.is_causal,
        "HAS_MASK": mask is not None,
        "HAS_BIAS": bias is not None,
        "DROPOUT": problem.dropout_p > 0,
        "EPS": _EPS,
    }
    return inputs, options


def _scratch(problem: Problem, q: Tensor, m: int, parts: int) -> tuple[Tensor, Tensor, Tensor]:
    """Memory of the workers for rows of scores: (parts, workers, m), and for oscarmax places and sums."""
    workers = min(prod(q.shape[:-1]), WORKERS)
    size = workers * m if problem.kernel == "oscarmax" else 1
    return (
        torch.empty((parts, workers, m), dtype=torch.float32, device=q.device),
        torch.empty(size, dtype=torch.int32, device=q.device),
        torch.empty(size, dtype=torch.float64, device=q.device),
    )


def _steps(part: Tensor | None) -> tuple[int, int]:
    """The strides of the slices and rows (slices, rows, keys) of a mask or bias; rows may be one for all queries."""
    if part is None:
        return 0, 0
    return part.stride(0), part.stride(1) if part.shape[1] > 1 else 0


def _sorted_entries(key: Tensor, used: Tensor, keys: int) -> tuple[Tensor, Tensor]:
    """The slots in use, sorted by key and then by query, and where each key's entries begin."""
    ordered, entries = torch.where(used, key, keys).flatten().sort(stable=True)
    starts = torch.searchsorted(ordered, torch.arange(keys + 1, device=key.device))
    return entries, starts


def _bias_grad(bias: Tensor, slices: Tensor, columns: Tensor, score_grad: Tensor, n: int) -> Tensor:
    count = len(columns)
    row = torch.arange(count, device=columns.device)
    at = slices[row // n] * bias.shape[1] + (row % n if bias.shape[1] > 1 else 0)
    flat = torch.zeros(bias.numel(), dtype=torch.float32, device=bias.device)
    places = at[:, None] * bias.shape[2] + torch.where(score_grad != 0, columns, 0)
    return flat.index_put((places.flatten(),), score_grad.flatten(), accumulate=True).reshape(bias.shape)
