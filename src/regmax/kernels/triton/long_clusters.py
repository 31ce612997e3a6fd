"""oscarmax of long rows in memory: sorting and pooling, one program per row, and the Jacobian product in chunks.

Every loop is followed by a barrier before another thread's results are read: the threads of a program run on their own.
"""

import triton
import triton.language as tl

from regmax.kernels.triton.chunks import weights_chunk
from regmax.kernels.triton.products import oscarmax_sums


@triton.jit
def _sort_pairs(Z, PLACE, i, j, size):
    """Exchange the entries i and j > i that are not in decreasing order; those from `size` on do not exist."""
    ok = j < size
    first, second = tl.load(Z + i, mask=ok, other=0.0), tl.load(Z + j, mask=ok, other=0.0)
    at, to = tl.load(PLACE + i, mask=ok, other=0), tl.load(PLACE + j, mask=ok, other=0)
    swap = ok & (first < second)
    tl.debug_barrier()
    tl.store(Z + i, second, mask=swap)
    tl.store(Z + j, first, mask=swap)
    tl.store(PLACE + i, to, mask=swap)
    tl.store(PLACE + j, at, mask=swap)


@triton.jit
def sort_decreasing(Z, PLACE, size, B: tl.constexpr):
    """Sort Z[:size] in place by a bitonic network, and PLACE with it.

    The first exchange of a merge mirrors its second half, so that all exchanges have one direction and the entries that
    would pad the length to a power of two never move.
    """
    half = size * 0 + 1
    while half < size:
        for at in range(0, size, B):
            t = at + tl.arange(0, B)
            i = t // half * (2 * half) + t % half
            _sort_pairs(Z, PLACE, i, i + 2 * (half - t % half) - 1, size)
        tl.debug_barrier()
        step = half // 2
        while step > 0:
            for at in range(0, size, B):
                t = at + tl.arange(0, B)
                i = t // step * (2 * step) + t % step
                _sort_pairs(Z, PLACE, i, i + step, size)
            tl.debug_barrier()
            step = step // 2
        half = half * 2


@triton.jit
def _steepest(U, first, stop, base, offset, B: tl.constexpr):
    """The largest s in [first, stop) that maximizes (U[s] - base) / (s + 1 - offset), and that maximum."""
    best = tl.full((B,), -float("inf"), tl.float64)
    place = tl.full((B,), -1, tl.int32)
    for at in range(first, stop, B):
        s = at + tl.arange(0, B)
        ok = s < stop
        slope = (tl.load(U + s, mask=ok, other=0.0) - base) / (s + 1 - offset).to(tl.float64)
        better = ok & (slope >= best)
        best, place = tl.where(better, slope, best), tl.where(better, s, place)
    top = tl.max(best, 0)
    return tl.max(tl.where(best == top, place, -1), 0), top


@triton.jit
def pooled_weights(Z, PLACE, U, size, lam, B: tl.constexpr, WORK: tl.constexpr):
    """Weights of oscarmax in place, for lam > 0: `clusters.oscarmax_weights` on memory, with sums in float64.

    The concave majorant of U is walked from the left: from every vertex the steepest chord leads to the next one.
    """
    for at in range(0, size, B):
        j = at + tl.arange(0, B)
        tl.store(PLACE + j, j, mask=j < size)
    tl.debug_barrier()
    sort_decreasing(Z, PLACE, size, B)
    total = tl.full((), 0.0, tl.float64)
    for at in range(0, size, B):
        s = at + tl.arange(0, B)
        u = tl.load(Z + s, mask=s < size, other=0.0).to(tl.float64) + lam * (s + 1).to(tl.float64)
        u = tl.where(s < size, u, 0.0)
        tl.store(U + s, total + tl.cumsum(u, 0), mask=s < size)
        total += tl.sum(u, 0)
    tl.debug_barrier()
    final, tau = _steepest(U, 0, size, 1.0, 0, B)
    final += 1
    first = final * 0
    base = tl.full((), 0.0, tl.float64)
    while first < final:
        last, level = _steepest(U, first, final, base, first, B)
        # Equal scores belong to one cluster, whatever the rounding of the sums.
        tied = tl.load(Z + last)
        while (last + 1 < final) & (tl.load(Z + tl.minimum(last + 1, size - 1)) == tied):
            last += 1
        level = (tl.load(U + last) - base) / (last + 1 - first).to(tl.float64)
        base = tl.load(U + last)
        tl.debug_barrier()
        for at in range(first, last + 1, B):
            s = at + tl.arange(0, B)
            tl.store(U + s, tl.zeros((B,), tl.float64) + level, mask=s <= last)
        first = last + 1
    tl.debug_barrier()
    for at in range(0, size, B):
        s = at + tl.arange(0, B)
        ok = s < size
        y = tl.where(s < final, tl.load(U + s, mask=ok, other=0.0) - tau, 0.0)
        tl.store(Z + tl.load(PLACE + s, mask=ok, other=0), tl.maximum(y, 0.0).to(WORK), mask=ok)


@triton.jit
def clusters_in_chunks(
    Y, V, KEEP, OUT, WEIGHT, DIRECTION, lam, gamma, live, d, y_step, v_step, keep_step,
    HAS_KEEP: tl.constexpr, WORK: tl.constexpr, R: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """oscarmax: the support is compacted into scratch memory, with which every chunk that has support is compared.

    Sums are in float64: the gradient of lam multiplies the rounding of a cluster's mean by its size and its place.
    """
    along = tl.zeros((R,), tl.float64)
    count = tl.zeros((R,), tl.int32)
    spoiled = tl.zeros((R,), tl.int32)
    for at in range(0, d, B):
        j = at + tl.arange(0, B)[None, :]
        y, v, kept = weights_chunk(Y, V, KEEP, j, y_step, v_step, keep_step, live, d, HAS_KEEP, WORK)
        spoiled = tl.maximum(spoiled, tl.max((y != y).to(tl.int32), 1))
        support = (y > 0).to(tl.int32)
        slot = count[:, None] + tl.cumsum(support, 1) - 1
        tl.store(WEIGHT + slot, y, mask=support > 0)
        tl.store(DIRECTION + slot, v, mask=support > 0)
        along += tl.sum(tl.where(y > 0, v, 0.0).to(tl.float64), 1)
        count += tl.sum(support, 1)
    centre = along / tl.maximum(count, 1)
    tl.debug_barrier()
    by_theta, by_gamma = tl.zeros((R,), tl.float64), tl.zeros((R,), tl.float64)
    for at in range(0, d, B):
        j = at + tl.arange(0, B)[None, :]
        y, v, kept = weights_chunk(Y, V, KEEP, j, y_step, v_step, keep_step, live, d, HAS_KEEP, WORK)
        others = tl.where(tl.max(tl.max((y > 0).to(tl.int32), 1), 0) > 0, tl.max(count, 0), 0)
        total, size, above = oscarmax_sums(y, WEIGHT, DIRECTION, 1, 1, others, count[:, None], tl.float64)
        mean = tl.where((lam > 0)[:, None], total / tl.maximum(size, 1), v.to(tl.float64))
        place = above.to(tl.float64) + (size - 1).to(tl.float64) / 2
        product = tl.where(y > 0, mean - centre[:, None], 0.0) / gamma[:, None]
        product = tl.where(kept & (spoiled > 0)[:, None], float("nan"), product)
        by_theta -= tl.sum(product * place, 1)
        by_gamma += tl.sum(tl.where(kept, product * (y - lam[:, None] * place), 0.0), 1)
        tl.store(OUT + j, product.to(WORK), mask=live & (j < d))
    return by_theta.to(WORK), by_gamma.to(WORK)
