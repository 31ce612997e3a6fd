"""Attention on the support: forward and backward passes on contiguous tensors of an accelerator.

`Problem` and `Operands` are those of the core; head dimensions are padded to a power of two from 16 on, and types are
float16, bfloat16 or float32.
"""

from math import prod
from typing import Any

import torch
import triton
from torch import Tensor

from regmax.kernels.native.attention import Operands, Problem
from regmax.kernels.triton.attention_products import attention_gather, attention_key_grads, attention_products
from regmax.kernels.triton.candidates import EPS, QUERIES, Weights, candidates, steps, strengths
from regmax.kernels.triton.dropout import dropout_of_slots
from regmax.kernels.triton.launch import kind, run, tile
from regmax.kernels.triton.long_attention import long_attention
from regmax.kernels.triton.long_attention_grads import long_attention_grads
from regmax.kernels.triton.row_kernels import row_weights

# Programs that share the queries with more candidates than slots, each with scratch for one row.
WORKERS = 256
CHUNK = 1024  # scores that such a program maps at a time
# Without a limit NVIDIA's assembler prefers more programs at once to registers, and spills some.
LONG_OPTIONS = {"num_warps": 8} if torch.version.hip else {"num_warps": 8, "maxnreg": 224}
SCAN = 128  # scores of a chunk in the gradients of such a query


def forward(problem: Problem, operands: Operands, seed: Tensor) -> tuple[Tensor, Weights]:
    """The output in float32, and the weights. Nothing is read by the host."""
    q, k, v, bias, _, _ = operands
    n, m, d = q.shape[-2], k.shape[-2], q.shape[-1]
    heads = prod(q.shape[:-2])
    count, groups = heads * n, heads // prod(k.shape[:-2])
    rows, slots = tile(m)
    theta, gamma = strengths(problem, operands)
    value, column, rank, counts, kept = found = candidates(problem, operands, theta, gamma)
    # No views of shared memory: it would outlive the scratch tensors, and an operator must not return them.
    weights = torch.empty_like(value)
    ordered = torch.empty_like(value) if problem.kernel == "oscarmax" else value
    number = kind(problem.kernel, problem.theta if operands.thetas is None else None)
    run(row_weights, q)(
        (triton.cdiv(count, rows),), value, ordered, column, rank, counts, kept, theta, weights, count, m, 1,
        R=rows, C=slots, KIND=number, SCATTER=False, EPS=EPS,
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
            problem.scale, problem.dropout_p, *steps(problem.mask), *steps(bias),
            B=keys_at_once(d, v.shape[-1]), D=d, E=v.shape[-1], C=slots, KIND=number, **options,
        )  # fmt: skip
    return out, found._replace(values=weights)


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
    """The gradients of all operands in float32. Nothing is read by the host."""
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
    inputs, options = _long_arguments(problem, operands, theta, gamma, weights.counts, seed)
    scratch, place, sums = _scratch(problem, q, m, 5 if problem.kernel == "oscarmax" else 3)
    for owners, order, wanted in _owners(count, n, groups, bias_grad, deterministic=deterministic):
        run(long_attention_grads, q, **LONG_OPTIONS)(
            (min(owners, WORKERS),), q, k, v, out_grad, *inputs, *scratch[:3], scratch[3:], place, sums,
            q_grad, k_grad, v_grad, q_grad if bias_grad is None else bias_grad, theta_grad, gamma_grad,
            count, n, m, groups, owners, *order, problem.scale, problem.dropout_p,
            *steps(problem.mask), *steps(bias), B=keys_at_once(d, e), SCAN=SCAN, D=d, E=e, C=slots, KIND=number,
            ATOMIC=not deterministic, **wanted, **options,
        )  # fmt: skip
    grads = (
        None if given is None else grad.reshape(heads, n).double().sum_to_size(given.shape)
        for grad, given in ((theta_grad, thetas), (gamma_grad, gammas))
    )
    return Operands(q_grad, k_grad, v_grad, bias_grad, *grads)


def _owners(
    count: int, n: int, groups: int, bias_grad: Tensor | None, *, deterministic: bool
) -> list[tuple[int, tuple[int, int, int], dict[str, bool]]]:
    """The launches of `long_attention_grads`: the owners of queries; span, length and step; what is added.

    With atomics every query is its own owner. Otherwise the owners of keys and values are the heads of keys, those of a
    bias its rows, or, if all queries share one row, a single program.
    """
    wants_bias = bias_grad is not None
    if not deterministic:
        return [(count, (1, 1, 1), {"WANTS_KEYS": True, "WANTS_BIAS": wants_bias})]
    head = groups * n
    launches = [(count // head, (head, head, 1), {"WANTS_KEYS": True, "WANTS_BIAS": False})]
    if bias_grad is not None:
        by_row = bias_grad.shape[1] > 1
        owners, order = (n, (1, count, n)) if by_row else (1, (count, count, 1))
        launches.append((owners, order, {"WANTS_KEYS": False, "WANTS_BIAS": True}))
    return launches


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
        "EPS": EPS,
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
