"""Attention by candidates, in one pass over the keys: every bucket keeps its two largest scores.

A query with three candidates in a bucket, or with a score that is not finite, is left to `attention_candidates`. There
is neither mask nor bias, so that a key's rank is its column. docs/derivations/parallel.md has the bound.
"""

import triton
import triton.language as tl

from regmax.kernels.triton.attention_scores import block_scores, end_of_keys
from regmax.kernels.triton.chains import positions
from regmax.kernels.triton.row_kernels import lower_bound

LEFT = tl.constexpr(-2)  # the count of a query that is left to `attention_candidates`


@triton.jit
def _append(VALUE, COLUMN, out, count, chosen, value, column, C: tl.constexpr):
    """Append the chosen scores to the `count` that every query already has, and return the new counts."""
    chosen = chosen.to(tl.int32)
    slot = count[:, None] + tl.cumsum(chosen, 1) - 1
    fits = (chosen > 0) & (slot < C)
    tl.store(VALUE + out + slot, value, mask=fits)
    tl.store(COLUMN + out + slot, column, mask=fits)
    return count + tl.sum(chosen, 1)


@triton.jit
def candidates_in_one_pass(
    Q,
    K,
    THETA,
    GAMMA,
    VALUE,
    COLUMN,
    COUNT,
    KEPT,
    n,
    m,
    groups,
    scale,
    M: tl.constexpr,
    B: tl.constexpr,
    D: tl.constexpr,
    C: tl.constexpr,
    KIND: tl.constexpr,
    CAUSAL: tl.constexpr,
    EPS: tl.constexpr,
):
    """The candidates of M queries by B buckets, in the buckets' order; the count LEFT if there may be others."""
    head = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * M + tl.arange(0, M)
    live = i < n
    row = head * n + i
    e = tl.arange(0, D)
    q = tl.load(Q + row[:, None] * D + e[None, :], mask=live[:, None], other=0.0)
    K += head // groups * m * D
    none = tl.full((M, B), -float("inf"), tl.float32)
    best, second, third = none, none, none
    at_best, at_second = tl.zeros((M, B), tl.int32), tl.zeros((M, B), tl.int32)
    for at in range(0, end_of_keys(tl.program_id(0) * M + M - 1, m, CAUSAL), B):
        j = at + tl.arange(0, B)
        x, seen = block_scores(q, K, K, K, i, j, n, m, scale, 0, 0, D, CAUSAL, False, False)
        # A score that is not finite counts as a third one.
        finite = tl.abs(x) < float("inf")
        third = tl.where(seen & ~finite, float("inf"), third)
        x = tl.where(seen & finite, x, -float("inf"))
        above, lower = x > best, tl.minimum(best, x)
        third = tl.maximum(third, tl.minimum(second, lower))
        at_second = tl.where(above, at_best, tl.where(x > second, at, at_second))
        second = tl.maximum(second, lower)
        at_best = tl.where(above, at, at_best)
        best = tl.maximum(best, x)
    theta = tl.load(THETA + row, mask=live, other=1.5)
    gamma = tl.load(GAMMA + row, mask=live, other=1.0)
    kept = end_of_keys(i, m, CAUSAL) + tl.zeros((M,), tl.int32)
    top = tl.max(best, 1)[:, None]
    top = tl.where(top > -float("inf"), top, 0)
    best = (best - top) / gamma[:, None]
    bound = lower_bound(best, theta, kept, KIND, EPS)[:, None]
    collides = (third - top) / gamma[:, None] > bound
    left = (tl.max(collides.to(tl.int32), 1) > 0) & live
    fits = (live & ~left)[:, None]
    out, bucket = row[:, None] * C, tl.arange(0, B)[None, :]
    count = tl.zeros((M,), tl.int32)
    count = _append(VALUE, COLUMN, out, count, fits & (best > bound), best, at_best + bucket, C)
    second = (second - top) / gamma[:, None]
    count = _append(VALUE, COLUMN, out, count, fits & (second > bound), second, at_second + bucket, C)
    tl.store(COUNT + row, tl.where(left, LEFT, count), mask=live)
    tl.store(KEPT + row, kept, mask=live)


@triton.jit
def list_queries(COUNT, LIST, SIZE, n, B: tl.constexpr):
    """The queries of a head that are left, in order: blocks of listed queries, and so results, never vary."""
    first = tl.program_id(0).to(tl.int64) * n
    size = tl.full((), 0, tl.int32)
    for at in range(0, n, B):
        i = at + tl.arange(0, B)
        left = (tl.load(COUNT + first + i, mask=i < n, other=0) == LEFT).to(tl.int32)
        tl.store(LIST + first + size + tl.cumsum(left, 0) - 1, i, mask=left > 0)
        size += tl.sum(left, 0)
    tl.store(SIZE + tl.program_id(0), size)


@triton.jit
def order_candidates(VALUE, COLUMN, RANK, COUNT, rows, R: tl.constexpr, C: tl.constexpr):
    """Sort the candidates of R queries by key, and write their ranks; those of overflowed queries are not used."""
    r = tl.program_id(0) * R + tl.arange(0, R)
    row, live = r.to(tl.int64), r < rows
    count = tl.load(COUNT + row, mask=live, other=0)
    count = tl.where(count > C, 0, tl.maximum(count, 0))
    index = positions(R, C)
    slots, ok = row[:, None] * C + index, index < count[:, None]
    value = tl.load(VALUE + slots, mask=ok, other=0.0)
    column = tl.load(COLUMN + slots, mask=ok, other=0)
    place = tl.zeros((R, C), tl.int32)
    for s in range(tl.max(count, 0)):
        other = tl.load(COLUMN + row * C + s, mask=s < count, other=2**31 - 1)
        place += (other[:, None] < column).to(tl.int32)
    tl.debug_barrier()
    slots = row[:, None] * C + place
    tl.store(VALUE + slots, value, mask=ok)
    tl.store(COLUMN + slots, column, mask=ok)
    tl.store(RANK + slots, column, mask=ok)
