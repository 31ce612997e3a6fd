"""Attention by candidates, in two passes over the keys: scores that may get weight are compacted, query by query."""

import triton
import triton.language as tl

from regmax.kernels.triton.attention_scores import at_head, block_scores, end_of_keys
from regmax.kernels.triton.row_kernels import FUSEDMAX, OSCARMAX, lower_bound


@triton.jit
def _tightened(
    best, bound, reach, top, theta, gamma, q, K, MASK, BIAS, i, n, m, stop, scale, mask_row, bias_row,
    M: tl.constexpr, B: tl.constexpr, D: tl.constexpr, C: tl.constexpr, KIND: tl.constexpr, CAUSAL: tl.constexpr,
    HAS_MASK: tl.constexpr, HAS_BIAS: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """The bound of oscarmax, whose slack is that of the scores above it: repeated as in `row_candidates`."""
    go = stop > C
    while go:
        count = tl.zeros((M,), tl.int32)
        for at in range(0, stop, B):
            j = at + tl.arange(0, B)
            x, seen = block_scores(
                q, K, MASK, BIAS, i, j, n, m, scale, mask_row, bias_row, D, CAUSAL, HAS_MASK, HAS_BIAS
            )
            value = (x - top[:, None]) / gamma[:, None]
            count += tl.sum((seen & (x != -float("inf")) & (value > bound[:, None])).to(tl.int32), 1)
        go = tl.max(((count < reach) & (count > C)).to(tl.int32), 0) > 0
        reach = tl.minimum(count, reach)
        bound = lower_bound(best, theta, reach, KIND, EPS)
    return bound


@triton.jit
def attention_candidates(
    Q,
    K,
    MASK,
    BIAS,
    MASK_SLICE,
    BIAS_SLICE,
    THETA,
    GAMMA,
    VALUE,
    COLUMN,
    RANK,
    COUNT,
    KEPT,
    LIST,
    SIZE,
    n,
    m,
    groups,
    scale,
    mask_slice,
    mask_row,
    bias_slice,
    bias_row,
    M: tl.constexpr,
    B: tl.constexpr,
    D: tl.constexpr,
    C: tl.constexpr,
    KIND: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_MASK: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    LISTED: tl.constexpr,
    EPS: tl.constexpr,
):
    """`row_candidates` for the scores of M queries, B keys at a time: bucket maxima, then compaction in key order.

    With LISTED only for the SIZE[head] queries of LIST[head], which `candidates_in_one_pass` left. A query with a score
    that is NaN or +inf gets the count -1.
    """
    head = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * M + tl.arange(0, M)
    if LISTED:
        i = tl.load(LIST + head * n + i, mask=i < tl.load(SIZE + head), other=n)
    live = i < n
    row = head * n + i
    e = tl.arange(0, D)
    q = tl.load(Q + row[:, None] * D + e[None, :], mask=live[:, None], other=0.0)
    K += head // groups * m * D
    MASK = at_head(MASK, MASK_SLICE, head, mask_slice, HAS_MASK)
    BIAS = at_head(BIAS, BIAS_SLICE, head, bias_slice, HAS_BIAS)
    theta = tl.load(THETA + row, mask=live, other=1.5)
    gamma = tl.load(GAMMA + row, mask=live, other=1.0)
    last = tl.max(tl.where(live, i, -1), 0)
    stop = tl.where(last < 0, 0, end_of_keys(last, m, CAUSAL))
    best = tl.full((M, B), -float("inf"), tl.float32)
    kept = tl.zeros((M,), tl.int32)
    spoiled = tl.zeros((M,), tl.int32)
    for at in range(0, stop, B):
        j = at + tl.arange(0, B)
        x, seen = block_scores(
            q, K, MASK, BIAS, i, j, n, m, scale, mask_row, bias_row, D, CAUSAL, HAS_MASK, HAS_BIAS
        )
        finite = seen & (tl.abs(x) < float("inf"))
        best = tl.maximum(best, tl.where(finite, x, -float("inf")))
        spoiled = tl.maximum(spoiled, tl.max((seen & ~(x < float("inf"))).to(tl.int32), 1))
        kept += tl.sum(finite.to(tl.int32), 1)
    top = tl.max(best, 1)
    top = tl.where(top > -float("inf"), top, 0)
    best = (best - top[:, None]) / gamma[:, None]
    bound = lower_bound(best, theta, kept, KIND, EPS)
    if KIND == OSCARMAX:
        bound = _tightened(
            best, bound, kept, top, theta, gamma, q, K, MASK, BIAS, i, n, m, stop, scale, mask_row, bias_row,
            M, B, D, C, KIND, CAUSAL, HAS_MASK, HAS_BIAS, EPS,
        )  # fmt: skip
    count = tl.zeros((M,), tl.int32)
    rank = tl.zeros((M,), tl.int32)
    out = row[:, None] * C
    for at in range(0, stop, B):
        j = at + tl.arange(0, B)
        x, seen = block_scores(
            q, K, MASK, BIAS, i, j, n, m, scale, mask_row, bias_row, D, CAUSAL, HAS_MASK, HAS_BIAS
        )
        allowed = seen & (x != -float("inf"))
        value = (x - top[:, None]) / gamma[:, None]
        chosen = (allowed & (value > bound[:, None]) & (spoiled == 0)[:, None]).to(tl.int32)
        if tl.max(tl.max(chosen, 1), 0) > 0:
            slot = count[:, None] + tl.cumsum(chosen, 1) - 1
            fits = (chosen > 0) & (slot < C)
            tl.store(VALUE + out + slot, value, mask=fits)
            tl.store(COLUMN + out + slot, tl.broadcast_to(j[None, :], (M, B)), mask=fits)
            if KIND == FUSEDMAX:
                places = rank[:, None] + tl.cumsum(allowed.to(tl.int32), 1) - 1
                tl.store(RANK + out + slot, places, mask=fits)
            count += tl.sum(chosen, 1)
        rank += tl.sum(allowed.to(tl.int32), 1)
    tl.store(COUNT + row, tl.where(spoiled > 0, -1, count), mask=live)
    tl.store(KEPT + row, kept, mask=live)
