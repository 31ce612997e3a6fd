"""fusedmax on tiles of candidates, by scans: docs/derivations/parallel.md has the proofs.

A tile is (R, C), its candidates in the order of the row. `start` and `end` mark the ends of the parts into which gaps
cut a row, as integers 0 and 1; `left` and `right` are the forces on those ends: -lam at a gap, 0 at an end of the row.
"""

import triton
import triton.language as tl

from regmax.kernels.triton.simplex import simplex_tau


@triton.jit
def _clip_then(shift, low, high, next_shift, next_low, next_high):
    """u -> clip(u + shift, low, high), then the next one: again such a map."""
    return (
        shift + next_shift,
        tl.minimum(tl.maximum(low + next_shift, next_low), next_high),
        tl.minimum(tl.maximum(high + next_shift, next_low), next_high),
    )


@triton.jit
def _latest(code, next_code):
    """2 means undecided, which takes the decision before it."""
    return tl.where(next_code == 2, code, next_code)


@triton.jit
def segment_add(total, flag, next_total, next_flag):
    """Sums that begin again at every flag."""
    return tl.where(next_flag != 0, next_total, total + next_total), flag | next_flag


@triton.jit
def _greatest(a, b):
    return tl.maximum(a, b)


@triton.jit
def _least(a, b):
    return tl.minimum(a, b)


@triton.jit
def positions(R: tl.constexpr, C: tl.constexpr):
    """The column of every slot."""
    return tl.broadcast_to(tl.arange(0, C)[None, :], (R, C))


@triton.jit
def before(x, index):
    """The value to the left of every slot; the first slot gets its own."""
    return tl.gather(x, tl.maximum(index - 1, 0), 1)


@triton.jit
def after(x, index, C: tl.constexpr):
    """The value to the right of every slot; the last slot gets its own."""
    return tl.gather(x, tl.minimum(index + 1, C - 1), 1)


@triton.jit
def segment_bounds(start, end, index, C: tl.constexpr):
    """The first and the last slot of the segment of every slot."""
    first = tl.associative_scan(tl.where(start != 0, index, 0), 1, _greatest)
    last = tl.associative_scan(tl.where(end != 0, index, C - 1), 1, _least, reverse=True)
    return first, last


@triton.jit
def segment_mean(x, start, first, last):
    """The mean of every segment, the same bits for all members."""
    total, _ = tl.associative_scan((x, start), 1, segment_add)
    return tl.gather(total, last, 1) / (last - first + 1).to(x.dtype)


@triton.jit
def best_subset(w, lam, start, end, left, right):
    """1 for the members of the subset that maximizes sum w - lam * borders, in every part.

    One scan of clips gives the preference u of each slot for being inside, given the best choice to its left. From the
    right, a slot whose |u| exceeds lam decides by itself and any other one copies its right neighbour: the copies are
    integers, so that rounding cannot give a set that is inconsistent.
    """
    first = start != 0
    shift = tl.where(first, 0.0, w)
    low = tl.where(first, left + w, w - lam)
    high = tl.where(first, left + w, w + lam)
    _, u, _ = tl.associative_scan((shift, low, high), 1, _clip_then)
    own = tl.where(u > lam, 1, tl.where(u < -lam, 0, 2))
    code = tl.where(end != 0, (u > -right).to(tl.int32), own)
    return tl.associative_scan(code, 1, _latest, reverse=True)


@triton.jit
def _support(x, ok, start, end, left, right, lam, index):
    """The support as integers, and the threshold tau, by Newton's method from below."""
    outer = tl.where(start != 0, left, 0.0) + tl.where(end != 0, right, 0.0)
    tau = simplex_tau(x, ok) - 2 * lam
    inside = ok.to(tl.int32)
    go = 1
    rounds = 0
    while (go > 0) & (rounds < 64):
        chosen = best_subset(x - tau[:, None], lam[:, None], start, end, left, right)
        inside = tl.where(ok, chosen, 0)
        borders = tl.sum(((start == 0) & (before(inside, index) != inside)).to(tl.int32), 1)
        count = tl.sum(inside, 1)
        force = tl.where(inside != 0, outer, 0.0)
        gain = tl.sum(tl.where(inside != 0, x - tau[:, None], 0.0) + force, 1) - lam * borders - 1
        higher = tau + gain / tl.maximum(count, 1)
        more = (count > 0) & (higher > tau)
        tau = tl.where(more, higher, tau)
        go = tl.max(more.to(tl.int32), 0)
        rounds += 1
    return inside, tau


@triton.jit
def fusedmax_weights(x, ok, start, end, left, right, lam, R: tl.constexpr, C: tl.constexpr):
    """Weights of fusedmax: the support, whose segments are split at their own levels until none splits."""
    index = positions(R, C)
    # Without a penalty every slot is a part, and its own segment.
    free = (lam == 0)[:, None]
    start, end = tl.where(free, 1, start), tl.where(free, 1, end)
    x = tl.where(ok, x, 0.0)
    strength = lam[:, None]
    inside, tau = _support(x, ok, start, end, left, right, lam, index)
    first_cut = (start == 0) & (before(inside, index) != inside)
    last_cut = (end == 0) & (after(inside, index, C) != inside)
    side = tl.where(inside != 0, -strength, strength)
    left = tl.where(start != 0, left, tl.where(first_cut, side, 0.0))
    right = tl.where(end != 0, right, tl.where(last_cut, side, 0.0))
    start, end = tl.where(first_cut, 1, start), tl.where(last_cut, 1, end)
    v = tl.where(ok, x - tau[:, None], 0.0)
    go = 1
    while go > 0:
        first, last = segment_bounds(start, end, index, C)
        w = v - segment_mean(v + (left + right), start, first, last)
        # The rounding of the mean, times the segment's length, would decide: subtract the mean of the remainder.
        w = w - segment_mean(w + (left + right), start, first, last)
        upper = best_subset(w, strength, start, end, left, right)
        first_cut = (inside != 0) & (start == 0) & (before(upper, index) != upper)
        last_cut = (inside != 0) & (end == 0) & (after(upper, index, C) != upper)
        side = tl.where(upper != 0, -strength, strength)
        left, right = tl.where(first_cut, side, left), tl.where(last_cut, side, right)
        start, end = tl.where(first_cut, 1, start), tl.where(last_cut, 1, end)
        go = tl.max(tl.max(first_cut.to(tl.int32), 1), 0)
    first, last = segment_bounds(start, end, index, C)
    level = segment_mean(v + (left + right), start, first, last)
    level = level + segment_mean(v - level + (left + right), start, first, last)
    return tl.where(inside != 0, tl.maximum(level, 0.0), 0.0)
