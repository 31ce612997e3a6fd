"""Finding the candidates of every query: the scores that may get weight, compacted into slots."""

from math import prod
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from regmax.kernels.native.attention import Operands, Problem
from regmax.kernels.triton import launch, row_kernels
from regmax.kernels.triton.attention_candidates import attention_candidates
from regmax.kernels.triton.attention_top2 import candidates_in_one_pass, list_queries, order_candidates
from regmax.kernels.triton.launch import kind, run, tile

HEAD_DIMENSIONS = (16, 32, 64, 128, 256)
QUERIES = 4  # of a program that gathers: 16 would spill registers
EPS = 2.0**-23


class Weights(NamedTuple):
    """The candidates of every query, in slots: weights, keys and ranks (queries, slots), and two numbers per query."""

    values: Tensor
    columns: Tensor
    ranks: Tensor
    counts: Tensor  # more than there are slots: overflow; -1: NaN
    kept: Tensor


def two_pass_block(d: int, dtype: torch.dtype) -> tuple[int, int, int]:
    """Queries, keys and warps of `attention_candidates`: the most without a stack (docs/gpu.md).

    Products of float32 scores are not computed by matrix units and take more registers and shared memory. With 8 warps
    NVIDIA's assembler would limit a head dimension of 32 to 128 registers, and spill.
    """
    if dtype == torch.float32:
        return (16, 16, 4) if d == 256 else (32, 32, 4 if d == 32 else 8)
    return (64, 32, 8) if d < 256 else (32, 32, 8)


def one_pass_block(d: int, dtype: torch.dtype, number: int) -> tuple[int, int, int] | None:
    """The same of `candidates_in_one_pass`. None: two passes, for those that would spill registers and for oscarmax."""
    spills = d > 128 or dtype == torch.float32 or number == row_kernels.ENTMAX.value
    return None if spills or number == row_kernels.OSCARMAX.value else (64, 64, 8)


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
    listed = sizes = counts
    plain = problem.mask is None and bias is None  # ranks are columns
    block = one_pass_block(d, q.dtype, number) if plain else None
    one_pass = block is not None and m > block[1]  # one block of keys is not read twice
    if block is not None and one_pass:
        queries, keys, warps = block
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
    queries, keys, warps = two_pass_block(d, q.dtype)
    mask = problem.mask
    run(attention_candidates, q, num_warps=warps)(
        (triton.cdiv(n, queries), heads), q, k, q if mask is None else mask, q if bias is None else bias,
        counts if mask is None else problem.mask_slices, counts if bias is None else problem.bias_slices,
        theta, gamma, value, column, rank, counts, kept, listed, sizes, n, m, groups, problem.scale,
        *steps(mask), *steps(bias), M=queries, B=keys, D=d, C=slots, KIND=number, CAUSAL=problem.is_causal,
        HAS_MASK=mask is not None, HAS_BIAS=bias is not None, LISTED=one_pass, EPS=EPS,
    )  # fmt: skip
    return Weights(value, column, rank, counts, kept)


def steps(part: Tensor | None) -> tuple[int, int]:
    """The strides of the slices and rows (slices, rows, keys) of a mask or bias; rows may be one for all queries."""
    if part is None:
        return 0, 0
    return part.stride(0), part.stride(1) if part.shape[1] > 1 else 0
