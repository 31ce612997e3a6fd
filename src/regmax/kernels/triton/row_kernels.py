"""The two kernels that map rows: `row_candidates` compacts the scores that may get weight, `row_weights` maps them.

KIND, a constant of both, is one of the numbers below. Offsets are 64-bit at the row, 32-bit inside it.
"""

import triton
import triton.language as tl

from regmax.kernels.triton.chains import after, before, fusedmax_weights, positions
from regmax.kernels.triton.clusters import oscarmax_weights
from regmax.kernels.triton.simplex import (
    pnorm_weights,
    simplex_tau,
    simplex_weights,
    tsallis15_reach,
    tsallis15_weights,
    tsallis_reach,
    tsallis_weights,
)

SPARSEMAX = tl.constexpr(0)
FUSEDMAX = tl.constexpr(1)
OSCARMAX = tl.constexpr(2)
SQPNORMMAX = tl.constexpr(3)
SQPNORMMAX_15 = tl.constexpr(4)
ENTMAX = tl.constexpr(5)
ENTMAX_15 = tl.constexpr(6)


@triton.jit
def lower_bound(best, theta, kept, KIND: tl.constexpr, EPS: tl.constexpr):
    """A bound, relative to the maximum, below which no score of the row has weight.

    `best` holds some of the row's scores, relative to its maximum; `kept` bounds the size of its support. Any subset of
    a row has a lower threshold than the row. The slack of fusedmax and oscarmax is that of their penalties; see
    docs/derivations/parallel.md.
    """
    ok = best > -float("inf")
    if (KIND == SQPNORMMAX) | (KIND == SQPNORMMAX_15):
        bound = tl.full((best.shape[0],), -1.0, best.dtype)
    elif KIND == ENTMAX_15:
        bound = -2 * tsallis15_reach(best, ok & (best > -2), EPS)
    elif KIND == ENTMAX:
        a = theta - 1
        reach = tsallis_reach(best, ok, a, EPS) / tl.where(a > 0, a, 1)
        bound = tl.where(a > 0, -reach, -float("inf"))
    else:
        bound = simplex_tau(best, ok & (best > -1))
    if KIND == FUSEDMAX:
        bound = bound - 4 * theta
    if KIND == OSCARMAX:
        bound = bound - theta * kept
    return bound * (1 + 16 * EPS) - 16 * EPS


@triton.jit
def row_scores(X, KEEP, j, x_step, keep_step, live, d, HAS_KEEP: tl.constexpr, WORK: tl.constexpr):
    """A chunk of scores, and which of them the mask allows."""
    allowed = live & (j < d)
    if HAS_KEEP:
        allowed = allowed & (tl.load(KEEP + j * keep_step, mask=allowed, other=0) != 0)
    x = tl.load(X + j * x_step, mask=allowed, other=-float("inf")).to(WORK)
    return x, allowed


@triton.jit
def row_candidates(
    X,
    KEEP,
    THETA,
    GAMMA,
    Y,
    VALUE,
    COLUMN,
    RANK,
    COUNT,
    KEPT,
    n,
    d,
    x_row,
    x_step,
    keep_row,
    keep_step,
    theta_row,
    gamma_row,
    R: tl.constexpr,
    B: tl.constexpr,
    C: tl.constexpr,
    KIND: tl.constexpr,
    HAS_KEEP: tl.constexpr,
    EPS: tl.constexpr,
):
    """Fill Y with zeros (NaN for rows without a result), and compact the candidates: (R, B) scores at a time.

    Two passes. The first takes the maximum of each of B buckets, the positions that are equal modulo B; these maxima
    bound the threshold. The second appends what exceeds the bound, in order: its value relative to the maximum, divided
    by gamma, its column, and its rank among the kept scores. COUNT may exceed C, which is an overflow; it is -1 for a
    row with NaN or +inf.
    """
    WORK: tl.constexpr = THETA.dtype.element_ty
    r = tl.program_id(0) * R + tl.arange(0, R)
    row, live = r.to(tl.int64), (r < n)[:, None]
    X, KEEP = X + row[:, None] * x_row, KEEP + row[:, None] * keep_row
    theta = tl.load(THETA + row * theta_row, mask=r < n, other=1.5)
    gamma = tl.load(GAMMA + row * gamma_row, mask=r < n, other=1.5)
    best = tl.full((R, B), -float("inf"), WORK)
    kept = tl.zeros((R,), tl.int32)
    spoiled = tl.zeros((R,), tl.int32)
    for at in range(0, d, B):
        j = at + tl.arange(0, B)[None, :]
        x, allowed = row_scores(X, KEEP, j, x_step, keep_step, live, d, HAS_KEEP, WORK)
        finite = allowed & (x < float("inf"))
        spoiled = tl.maximum(spoiled, tl.max((allowed & ~(x < float("inf"))).to(tl.int32), 1))
        best = tl.maximum(best, tl.where(finite, x, -float("inf")))
        kept += tl.sum((finite & (x > -float("inf"))).to(tl.int32), 1)
    top = tl.max(best, 1)
    top = tl.where(top > -float("inf"), top, 0)
    best = (best - top[:, None]) / gamma[:, None]
    bound = lower_bound(best, theta, kept, KIND, EPS)
    if KIND == OSCARMAX:
        # The slack is that of the number of scores above the bound: repeat until the tile holds them, or none leaves.
        reach = kept
        go = d > C
        while go:
            count = tl.zeros((R,), tl.int32)
            for at in range(0, d, B):
                j = at + tl.arange(0, B)[None, :]
                x, allowed = row_scores(X, KEEP, j, x_step, keep_step, live, d, HAS_KEEP, WORK)
                value = (x - top[:, None]) / gamma[:, None]
                count += tl.sum((allowed & (value > bound[:, None])).to(tl.int32), 1)
            go = tl.max(((count < reach) & (count > C)).to(tl.int32), 0) > 0
            reach = tl.minimum(count, reach)
            bound = lower_bound(best, theta, reach, KIND, EPS)
    count = tl.zeros((R,), tl.int32)
    rank = tl.zeros((R,), tl.int32)
    fill = tl.where(spoiled > 0, float("nan"), 0.0)
    out = row[:, None] * C
    for at in range(0, d, B):
        j = at + tl.arange(0, B)[None, :]
        x, allowed = row_scores(X, KEEP, j, x_step, keep_step, live, d, HAS_KEEP, WORK)
        value = (x - top[:, None]) / gamma[:, None]
        is_kept = (allowed & (x > -float("inf"))).to(tl.int32)
        chosen = ((is_kept > 0) & (value > bound[:, None]) & (spoiled == 0)[:, None]).to(tl.int32)
        slot = count[:, None] + tl.cumsum(chosen, 1) - 1
        fits = (chosen > 0) & (slot < C)
        tl.store(VALUE + out + slot, value, mask=fits)
        tl.store(COLUMN + out + slot, tl.broadcast_to(j, (R, B)), mask=fits)
        if KIND == FUSEDMAX:
            tl.store(RANK + out + slot, rank[:, None] + tl.cumsum(is_kept, 1) - 1, mask=fits)
            rank += tl.sum(is_kept, 1)
        count += tl.sum(chosen, 1)
        tl.store(Y + row[:, None] * d + j, tl.where(allowed, fill[:, None], 0.0), mask=live & (j < d))
    tl.store(COUNT + row, tl.where(spoiled > 0, -1, count), mask=r < n)
    tl.store(KEPT + row, kept, mask=r < n)


@triton.jit
def chain_weights(x, ok, rank, kept, lam, R: tl.constexpr, C: tl.constexpr):
    """fusedmax of candidates in order: those whose ranks are not adjacent are separated by a lower, kept score."""
    index = positions(R, C)
    start = tl.where((index == 0) | (before(rank, index) != rank - 1) | ~ok, 1, 0)
    end = tl.where((index == C - 1) | (after(rank, index, C) != rank + 1) | ~ok, 1, 0)
    pull = -lam[:, None]
    left = tl.where((start != 0) & (rank != 0), pull, 0.0)
    right = tl.where((end != 0) & (rank != kept[:, None] - 1), pull, 0.0)
    return fusedmax_weights(x, ok, start, end, left, right, lam, R, C)


@triton.jit
def sorted_places(x, ok, VALUE, count, index):
    """The place of every candidate in decreasing order, ties in order of the row. VALUE points at each row's slots."""
    place = tl.zeros(x.shape, tl.int32)
    for i in range(tl.max(count, 0)):
        other = tl.load(VALUE + i, mask=i < count, other=-float("inf"))[:, None]
        place += ((other > x) | ((other == x) & (i < index))).to(tl.int32)
    return tl.where(ok, place, index)


@triton.jit
def smooth_weights(x, ok, theta, KIND: tl.constexpr, EPS: tl.constexpr):
    """The mappings without groups."""
    if KIND == SPARSEMAX:
        return simplex_weights(x, ok)
    elif KIND == ENTMAX_15:
        return tsallis15_weights(x, ok, EPS)
    elif KIND == ENTMAX:
        return tsallis_weights(x, ok, theta - 1, EPS)
    else:
        return pnorm_weights(x, ok, theta, EPS, KIND == SQPNORMMAX_15)


@triton.jit
def row_weights(
    VALUE,
    SORTED,
    COLUMN,
    RANK,
    COUNT,
    KEPT,
    THETA,
    Y,
    n,
    d,
    theta_row,
    R: tl.constexpr,
    C: tl.constexpr,
    KIND: tl.constexpr,
    SCATTER: tl.constexpr,
    EPS: tl.constexpr,
):
    """Map the candidates of R rows. Rows that overflowed get no weights.

    With SCATTER the weights go to their columns of Y (n, d), else to their slots of Y (n, C), all of which are written.
    SORTED is scratch memory for oscarmax, shaped like VALUE.
    """
    r = tl.program_id(0) * R + tl.arange(0, R)
    row = r.to(tl.int64)
    index = positions(R, C)
    count = tl.load(COUNT + row, mask=r < n, other=0)
    count = tl.where(count > C, 0, tl.maximum(count, 0))
    theta = tl.load(THETA + row * theta_row, mask=r < n, other=1.5)
    slots = row[:, None] * C + index
    ok = index < count[:, None]
    x = tl.load(VALUE + slots, mask=ok, other=-float("inf"))
    if KIND == FUSEDMAX:
        rank = tl.load(RANK + slots, mask=ok, other=-7)
        y = chain_weights(x, ok, rank, tl.load(KEPT + row, mask=r < n, other=0), theta, R, C)
    elif KIND == OSCARMAX:
        place = sorted_places(x, ok, VALUE + row * C, count, index)
        tl.store(SORTED + row[:, None] * C + place, x, mask=ok)
        tl.debug_barrier()
        descending = tl.load(SORTED + slots, mask=ok, other=-float("inf"))
        y = tl.gather(oscarmax_weights(descending, ok, theta, R, C), place, 1)
    else:
        y = smooth_weights(x, ok, theta, KIND, EPS)
    if SCATTER:
        column = tl.load(COLUMN + slots, mask=ok, other=0)
        tl.store(Y + row[:, None] * d + column, y, mask=ok)
    else:
        tl.store(Y + slots, tl.where(ok, y, 0.0), mask=(r < n)[:, None])
