"""Attention on the support: forward and backward passes on contiguous tensors of an accelerator.

`Problem` and `Operands` are those of the core; head dimensions are padded to a power of two from 16 on, and types are
float16, bfloat16 or float32.
"""

from typing import NamedTuple

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
from regmax.kernels.triton.launch import OPTIONS, kind, tile
from regmax.kernels.triton.row_kernels import row_weights

# Queries and keys of a block by head dimension, and warps: the largest without a stack (docs/gpu.md).
BLOCKS = {16: (64, 32, 8), 32: (64, 32, 8), 64: (64, 32, 8), 128: (64, 32, 8), 256: (32, 32, 8)}
QUERIES = 4  # of a program that gathers: 16 would spill registers
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
        """The numbers of the queries that need the dense path. Their number is read by the host."""
        slots = self.values.shape[1]
        return ((self.counts > slots) | (self.counts < 0)).nonzero()[:, 0]


def strengths(problem: Problem, operands: Operands) -> tuple[Tensor, Tensor]:
    """theta and gamma of every query."""
    q = operands.q
    heads, n = q.shape[:-2].numel(), q.shape[-2]

    def per_query(number: float, given: Tensor | None) -> Tensor:
        value = q.new_tensor([[number]], dtype=torch.float32) if given is None else given.detach().float()
        return value.expand(heads, n).reshape(-1).contiguous()

    return per_query(problem.theta, operands.thetas), per_query(problem.gamma, operands.gammas)


def forward(problem: Problem, operands: Operands, seed: Tensor) -> tuple[Tensor, Weights]:
    """The output in float32, without the queries that are refused, and the weights."""
    q, k, v, bias, _, _ = operands
    n, m, d = q.shape[-2], k.shape[-2], q.shape[-1]
    heads = q.shape[:-2].numel()
    count, groups = heads * n, heads // k.shape[:-2].numel()
    rows, slots = tile(m)
    theta, gamma = strengths(problem, operands)
    value, ordered, weights = q.new_empty((3, count, slots), dtype=torch.float32)
    column, rank = q.new_empty((2, count, slots), dtype=torch.int32)
    counts, kept = q.new_empty((2, count), dtype=torch.int32)
    queries, keys, warps = BLOCKS[d]
    mask = problem.mask
    number = kind(problem.kernel, problem.theta if operands.thetas is None else None)
    attention_candidates[(triton.cdiv(n, queries), heads)](
        q, k, q if mask is None else mask, q if bias is None else bias,
        problem.mask_slices, problem.bias_slices, theta, gamma,
        value, column, rank, counts, kept, n, m, groups, problem.scale,
        *_steps(mask), *_steps(bias), M=queries, B=keys, D=d, C=slots, KIND=number, CAUSAL=problem.is_causal,
        HAS_MASK=mask is not None, HAS_BIAS=bias is not None, EPS=_EPS, **{**OPTIONS, "num_warps": warps},
    )  # fmt: skip
    row_weights[(triton.cdiv(count, rows),)](
        value, ordered, column, rank, counts, kept, theta, weights, count, m, 1,
        R=rows, C=slots, KIND=number, SCATTER=False, EPS=_EPS, **OPTIONS,
    )  # fmt: skip
    out = q.new_empty((*q.shape[:-1], v.shape[-1]), dtype=torch.float32)
    attention_gather[(triton.cdiv(count, QUERIES),)](
        weights, column, counts, v, _factors(problem, column, seed), out, count, n, m, groups,
        R=QUERIES, D=v.shape[-1], C=slots, DROPOUT=problem.dropout_p > 0, **OPTIONS,
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
) -> Operands:
    """The gradients of all operands in float32; those of queries that were refused are not included."""
    q, k, v, bias, thetas, gammas = operands
    n, m, d, e = q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1]
    heads = q.shape[:-2].numel()
    count, groups = heads * n, heads // k.shape[:-2].numel()
    _, slots = tile(m)
    theta, gamma = strengths(problem, operands)
    atomic = not torch.are_deterministic_algorithms_enabled()
    score_grad = q.new_zeros((count, slots), dtype=torch.float32)
    q_grad = torch.empty_like(q, dtype=torch.float32)
    k_grad, v_grad = (torch.zeros_like(x, dtype=torch.float32) for x in (k, v))
    theta_grad, gamma_grad = q.new_empty((2, count), dtype=torch.float32)
    number = kind(problem.kernel, problem.theta if thetas is None else None)
    dropout = {"DROPOUT": problem.dropout_p > 0}
    factors = _factors(problem, weights.columns, seed)
    attention_products[(triton.cdiv(count, QUERIES),)](
        q, k, v, out_grad, *weights[:5], theta, gamma, factors,
        score_grad, q_grad, k_grad, v_grad, theta_grad, gamma_grad,
        count, n, m, groups, problem.scale,
        R=QUERIES, D=d, E=e, C=slots, KIND=number, ATOMIC=atomic, **dropout, **OPTIONS,
    )  # fmt: skip
    key = (torch.arange(count, device=q.device)[:, None] // n // groups) * m + weights.columns
    used = weights.values > 0
    if not atomic:
        entries, starts = _sorted_entries(key, used, k_grad.shape[:-1].numel())
        attention_key_grads[(k_grad.shape[:-1].numel(),)](
            q, out_grad, weights.values, score_grad, entries, starts, factors, k_grad, v_grad,
            problem.scale, D=d, E=e, C=slots, **dropout, **OPTIONS,
        )  # fmt: skip
    bias_grad = None
    if wants_bias and bias is not None and problem.bias_slices is not None:
        bias_grad = _bias_grad(
            bias, problem.bias_slices, weights.columns, torch.where(used, score_grad, 0), n
        )
    grads = (
        None if given is None else grad.reshape(heads, n).double().sum_to_size(given.shape)
        for grad, given in ((theta_grad, thetas), (gamma_grad, gammas))
    )
    return Operands(q_grad, k_grad, v_grad, bias_grad, *grads)


def dropout_of(problem: Problem, queries: Tensor, m: int, seed: Tensor) -> Tensor:
    """The factors of dropout for the scores of some queries, by number: (queries, m), the same as in the kernels."""
    out = torch.empty((len(queries), m), dtype=torch.float32, device=queries.device)
    dropout_of_queries[(len(queries),)](queries, seed, out, m, problem.dropout_p, B=256, **OPTIONS)
    return out


def _factors(problem: Problem, columns: Tensor, seed: Tensor) -> Tensor:
    """The factors of dropout for all candidates; without dropout any tensor serves."""
    if problem.dropout_p == 0:
        return columns
    out = torch.empty_like(columns, dtype=torch.float32)
    size, slots = out.numel(), out.shape[1]
    dropout_of_slots[(triton.cdiv(size, 256),)](
        columns, seed, out, size, problem.dropout_p, B=256, C=slots, **OPTIONS
    )
    return out


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
