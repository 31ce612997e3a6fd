"""Finding the candidates of every query: the scores that may get weight, compacted into slots."""

from math import prod
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from regmax.kernels.native.attention import Operands, Problem
from regmax.kernels.triton import launch
from regmax.kernels.triton.attention_candidates import attention_candidates
from regmax.kernels.triton.attention_top2 import candidates_in_one_pass, list_queries, order_candidates
from regmax.kernels.triton.launch import kind, run, tile

# Queries and keys of a block by head dimension, and warps: the largest without a stack (docs/gpu.md).
BLOCKS = {16: (64, 32, 8), 32: (64, 32, 8), 64: (64, 32, 8), 128: (64, 32, 8), 256: (32, 32, 8)}
ONE_PASS = dict.fromkeys((16, 32, 64, 128), (64, 64, 8))  # of `candidates_in_one_pass`; compiled for 64 only
QUERIES = 4  # of a program that gathers: 16 would spill registers
EPS = 2.0**-23


class Weights(NamedTuple):
    """The candidates of every query, in slots: weights, keys and ranks (queries, slots), and two numbers per query."""

    values: Tensor
    columns: Tensor
    ranks: Tensor
    counts: Tensor  # more than there are slots: overflow; -1: NaN
    kept: Tensor


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


def candidates(problem: Problem, operands: Operands, theta: Tensor, gamma: Tensor) -> Weights:
    """The candidates of every query, their scores as values; in one pass over the keys if it suits."""
    q, k, _, bias, _, _ = operands
    n, m, d = q.shape[-2], k.shape[-2], q.shape[-1]
    heads = prod(q.shape[:-2])
    count, groups, slots = heads * n, heads // prod(k.shape[:-2]), tile(m)[1]
    value = q.new_empty((count, slots), dtype=torch.float32)
    column, rank = (q.new_empty((count, slots), dtype=torch.int32) for _ in range(2))
    counts, kept = (q.new_empty(count, dtype=torch.int32) for _ in range(2))
    number = kind(problem.kernel, problem.theta if operands.thetas is None else None)
    listed, sizes, one_pass = counts, counts, _suits_one_pass(problem, operands)
    if one_pass:
        queries, keys, warps = ONE_PASS[d]
        run(candidates_in_one_pass, q, num_warps=warps)(
            (triton.cdiv(n, queries), heads), q, k, theta, gamma, value, column, counts, kept,
            n, m, groups, problem.scale, M=queries, B=keys, D=d, C=slots, KIND=number, CAUSAL=problem.is_causal,
            EPS=EPS,
        )  # fmt: skip
        listed, sizes = q.new_empty(count, dtype=torch.int32), q.new_empty(heads, dtype=torch.int32)
        run(list_queries, q)((heads,), counts, listed, sizes, n, B=launch.CHUNK)
        if problem.kernel == "fusedmax":
            grid = (triton.cdiv(count, QUERIES),)
            run(order_candidates, q)(grid, value, column, rank, counts, count, R=QUERIES, C=slots)
    queries, keys, warps = BLOCKS[d]
    mask = problem.mask
    run(attention_candidates, q, num_warps=warps)(
        (triton.cdiv(n, queries), heads), q, k, q if mask is None else mask, q if bias is None else bias,
        counts if mask is None else problem.mask_slices, counts if bias is None else problem.bias_slices,
        theta, gamma, value, column, rank, counts, kept, listed, sizes, n, m, groups, problem.scale,
        *steps(mask), *steps(bias), M=queries, B=keys, D=d, C=slots, KIND=number, CAUSAL=problem.is_causal,
        HAS_MASK=mask is not None, HAS_BIAS=bias is not None, LISTED=one_pass, EPS=EPS,
    )  # fmt: skip
    return Weights(value, column, rank, counts, kept)


def _suits_one_pass(problem: Problem, operands: Operands) -> bool:
    """Whether ranks are columns, one bound serves, and there is more than one block of keys to read twice."""
    d, m = operands.q.shape[-1], operands.k.shape[-2]
    plain = problem.mask is None and operands.bias is None
    return plain and problem.kernel != "oscarmax" and d in ONE_PASS and m > ONE_PASS[d][1]


def steps(part: Tensor | None) -> tuple[int, int]:
    """The strides of the slices and rows (slices, rows, keys) of a mask or bias; rows may be one for all queries."""
    if part is None:
        return 0, 0
    return part.stride(0), part.stride(1) if part.shape[1] > 1 else 0
