"""oscarmax on tiles of candidates that are sorted in decreasing order: docs/derivations/parallel.md has the proof."""

import triton
import triton.language as tl

from regmax.kernels.triton.chains import (
    _greatest,
    after,
    before,
    positions,
    segment_add,
    segment_bounds,
    segment_mean,
)


@triton.jit
def _peak(value, place, flag, next_value, next_place, next_flag):
    """The first maximum of every segment, and its slot."""
    take = (next_flag != 0) | (next_value > value)
    return tl.where(take, next_value, value), tl.where(take, next_place, place), flag | next_flag


@triton.jit
def _ends(start, index, C: tl.constexpr):
    return tl.where(index == C - 1, 1, after(start, index, C))


@triton.jit
def oscarmax_weights(x, ok, lam, R: tl.constexpr, C: tl.constexpr):
    """Weights of oscarmax, of scores x_(1) >= x_(2) >= ... with u_k = x_(k) + lam k.

    tau = max_m (U_m - 1) / m, U the cumulative sums of u; the scores up to the largest such m are pooled into the
    concave envelope of U: a segment is split at the point of U that is farthest above the segment's chord.
    """
    index = positions(R, C)
    u = tl.where(ok, x + lam[:, None] * (index + 1).to(x.dtype), 0.0)
    slope = tl.where(ok, (tl.cumsum(u, 1) - 1) / (index + 1).to(x.dtype), -float("inf"))
    size = tl.max(tl.where(ok & (slope == tl.max(slope, 1)[:, None]), index, -1), 1) + 1
    inside = index < size[:, None]
    # The sum over only the support has a smaller rounding error than the cumulative sum.
    tau = (tl.sum(tl.where(inside, u, 0.0), 1) - 1) / tl.maximum(size, 1)
    v = tl.where(inside, u - tau[:, None], 0.0)
    # Without a penalty every slot is its own segment.
    cut = (index == 0) | (index == size[:, None]) | (lam == 0)[:, None]
    start = cut.to(tl.int32)
    go = 1
    while go > 0:
        end = _ends(start, index, C)
        first, last = segment_bounds(start, end, index, C)
        w = v - segment_mean(v, start, first, last)
        w = w - segment_mean(w, start, first, last)
        height, _ = tl.associative_scan((w, start), 1, segment_add)
        height = tl.where(end != 0, 0.0, height)
        top, place, _ = tl.associative_scan((height, index, start), 1, _peak)
        top, place = tl.gather(top, last, 1), tl.gather(place, last, 1)
        cut = inside & (start == 0) & (top > 0) & (index == place + 1)
        start = tl.where(cut, 1, start)
        go = tl.max(tl.max(cut.to(tl.int32), 1), 0)
    first, last = segment_bounds(start, _ends(start, index, C), index, C)
    level = segment_mean(v, start, first, last)
    level = level + segment_mean(v - level, start, first, last)
    y = tl.where(inside, tl.maximum(level, 0.0), 0.0)
    # Equal scores that rounding has separated get one value.
    tied = tl.associative_scan(tl.where((index > 0) & (before(x, index) == x), 0, index), 1, _greatest)
    return tl.gather(y, tied, 1)
