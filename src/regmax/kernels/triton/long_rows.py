"""Rows with more candidates than a tile has slots: one program per row, in passes over the row's memory.

Slow and exact: flat rows, and strengths near softmax. Every other row's program ends at once, so that the host need
not know whether there is such a row.
"""

import triton
import triton.language as tl

from regmax.kernels.triton.long_clusters import pooled_weights
from regmax.kernels.triton.row_kernels import (
    ENTMAX,
    ENTMAX_15,
    FUSEDMAX,
    OSCARMAX,
    SPARSEMAX,
    SQPNORMMAX_15,
    row_scores,
)
from regmax.kernels.triton.simplex import (
    pnorm_ratios,
    pnorm_step,
    power,
    tsallis_ratios,
    tsallis_step,
)


@triton.jit
def _chunk(Z, at, size, B: tl.constexpr):
    """A chunk of the compacted row Z, and which of its slots are in use."""
    j = at + tl.arange(0, B)
    ok = j < size
    return tl.load(Z + j, mask=ok, other=-float("inf")), ok, j


@triton.jit
def _simplex(Z, size, B: tl.constexpr, WORK: tl.constexpr):
    top = tl.full((), -float("inf"), WORK)
    for at in range(0, size, B):
        x, ok, j = _chunk(Z, at, size, B)
        top = tl.maximum(top, tl.max(x, 0))
    tau = tl.full((), -1.0, WORK)
    # The first threshold is not that of the whole row, so that the first count does not end the loop.
    count = size + 2
    left = size + 1
    while left < count:
        count = left
        left = size * 0
        total = tl.full((), -1.0, WORK)
        for at in range(0, size, B):
            x, ok, j = _chunk(Z, at, size, B)
            inside = ok & (x - top > tau)
            left += tl.sum(inside.to(tl.int32), 0)
            total += tl.sum(tl.where(inside, x - top, 0.0), 0)
        tau = tl.where(left > 0, total / tl.maximum(left, 1), tau)
    tl.debug_barrier()
    for at in range(0, size, B):
        x, ok, j = _chunk(Z, at, size, B)
        tl.store(Z + j, tl.maximum(x - top - tau, 0.0), mask=ok)


@triton.jit
def _tsallis(Z, size, a, B: tl.constexpr, WORK: tl.constexpr, EPS: tl.constexpr):
    m = tl.full((), 1.0, WORK)
    step = m
    total = m
    rounds = 0
    while ((step > 4 * EPS) & (rounds < 64)) | (rounds == 0):
        total = tl.full((), 0.0, WORK)
        slope = tl.full((), 0.0, WORK)
        for at in range(0, size, B):
            x, ok, j = _chunk(Z, at, size, B)
            share, r = tsallis_ratios(-x, ok, m, a)
            total += tl.sum(r, 0)
            slope += tl.sum(r / (1 - share), 0)
        m, step = tsallis_step(m, a, total, slope)
        rounds += 1
    total = tl.full((), 0.0, WORK)
    for at in range(0, size, B):
        x, ok, j = _chunk(Z, at, size, B)
        share, r = tsallis_ratios(-x, ok, m, a)
        total += tl.sum(r, 0)
    tl.debug_barrier()
    for at in range(0, size, B):
        x, ok, j = _chunk(Z, at, size, B)
        share, r = tsallis_ratios(-x, ok, m, a)
        tl.store(Z + j, r / total, mask=ok)


@triton.jit
def _pnorm(Z, size, p, B: tl.constexpr, WORK: tl.constexpr, EPS: tl.constexpr, HALVES: tl.constexpr):
    q = p / (p - 1)
    m = tl.full((), 1.0, WORK)
    high = m
    low = power(m * size, -2 / q)
    change = m
    rounds = 0
    while (change > 4 * EPS) & (rounds < 64):
        s_0 = tl.full((), 0.0, WORK)
        s_1 = tl.full((), 0.0, WORK)
        s_2 = tl.full((), 0.0, WORK)
        for at in range(0, size, B):
            x, ok, j = _chunk(Z, at, size, B)
            r, lead = pnorm_ratios(-x, ok, m, q, HALVES)
            s_0 += tl.sum(lead, 0)
            s_1 += tl.sum(lead * r, 0)
            s_2 += tl.sum(lead * r * r, 0)
        m, low, high, change = pnorm_step(m, low, high, q, s_0, s_1, s_2)
        rounds += 1
    total = tl.full((), 0.0, WORK)
    for at in range(0, size, B):
        x, ok, j = _chunk(Z, at, size, B)
        r, lead = pnorm_ratios(-x, ok, m, q, HALVES)
        total += tl.sum(lead * r, 0)
    tl.debug_barrier()
    for at in range(0, size, B):
        x, ok, j = _chunk(Z, at, size, B)
        r, lead = pnorm_ratios(-x, ok, m, q, HALVES)
        tl.store(Z + j, lead * r / total, mask=ok)


@triton.jit
def _fill(Z, first, last, value, B: tl.constexpr, WORK: tl.constexpr):
    """Write one value to first, ..., last, which no thread may read any more."""
    tl.debug_barrier()
    for at in range(first, last + 1, B):
        j = at + tl.arange(0, B)
        tl.store(Z + j, tl.zeros((B,), WORK) + value.to(WORK), mask=j <= last)


@triton.jit
def _total_variation(Z, size, lam, floor, B: tl.constexpr, WORK: tl.constexpr):
    """Total variation denoising in place, in float64, by the taut string (Condat 2013, from left to right).

    A segment begins at `first`. `low` and `high` bound its level, `low_force` and `high_force` are the forces of the
    edge after `k` for these levels. The segment ends at the last point at which its bound touched: `low_at`, `high_at`.
    Scores below `floor` have no weight at any lower value, and are raised to it.
    """
    k = size * 0
    first = k
    low_at = k
    high_at = k
    x = tl.maximum(tl.load(Z), floor).to(tl.float64)
    low, high, low_force, high_force = x - lam, x + lam, lam, -lam
    while first < size:
        down = k < 0
        up = down
        if k == size - 1:
            # No edge after the last score: its force is zero.
            down = low_force < 0
            up = (high_force > 0) & (low_force >= 0)
            if (low_force >= 0) & (high_force <= 0):
                level = low + low_force / (k - first + 1)
                _fill(Z, first, k, level, B, WORK)
                first = size
        else:
            x = tl.maximum(tl.load(Z + k + 1), floor).to(tl.float64)
            low_force += x - low
            high_force += x - high
            down = low_force < -lam
            up = (high_force > lam) & (low_force >= -lam)
            if (low_force >= -lam) & (high_force <= lam):
                k += 1
                if low_force >= lam:
                    low += (low_force - lam) / (k - first + 1)
                    low_force = lam
                    low_at = k
                if high_force <= -lam:
                    high += (high_force + lam) / (k - first + 1)
                    high_force = -lam
                    high_at = k
        if (first < size) & (down | up):
            last = tl.where(down, low_at, high_at)
            _fill(Z, first, last, tl.where(down, low, high), B, WORK)
            # The edge to the segment that has ended pulls the next one with its full force.
            first = last + 1
            k, low_at, high_at = first, first, first
            x = tl.maximum(tl.load(Z + first), floor).to(tl.float64)
            low = tl.where(down, x, x - 2 * lam)
            high = tl.where(down, x + 2 * lam, x)
            low_force, high_force = lam, -lam
    tl.debug_barrier()


@triton.jit
def map_compacted(
    Z, PLACE, U, size, theta, KIND: tl.constexpr, B: tl.constexpr, WORK: tl.constexpr, EPS: tl.constexpr
):
    """Replace the scores Z[:size], relative to their maximum, by weights. PLACE and U are scratch of oscarmax."""
    if KIND == FUSEDMAX:
        _total_variation(Z, size, theta.to(tl.float64), -1 - 4 * theta, B, WORK)
        _simplex(Z, size, B, WORK)
    elif KIND == SPARSEMAX:
        _simplex(Z, size, B, WORK)
    elif KIND == OSCARMAX:
        if theta > 0:
            pooled_weights(Z, PLACE, U, size, theta.to(tl.float64), B, WORK)
        else:
            _simplex(Z, size, B, WORK)
    elif (KIND == ENTMAX) | (KIND == ENTMAX_15):
        _tsallis(Z, size, theta - 1, B, WORK, EPS)
    else:
        _pnorm(Z, size, theta, B, WORK, EPS, KIND == SQPNORMMAX_15)


@triton.jit
def long_rows(
    X,
    KEEP,
    THETA,
    GAMMA,
    Y,
    PLACE,
    U,
    COUNT,
    d,
    x_row,
    x_step,
    keep_row,
    keep_step,
    theta_row,
    gamma_row,
    B: tl.constexpr,
    C: tl.constexpr,
    KIND: tl.constexpr,
    HAS_KEEP: tl.constexpr,
    EPS: tl.constexpr,
):
    """Map the row of this program if its candidates overflowed; Y has the type WORK and serves as scratch memory."""
    WORK: tl.constexpr = THETA.dtype.element_ty
    row = tl.program_id(0).to(tl.int64)
    if tl.load(COUNT + row) > C:
        X, KEEP, Z = X + row * x_row, KEEP + row * keep_row, Y + row * d
        gamma = tl.load(GAMMA + row * gamma_row)
        best = tl.full((B,), -float("inf"), WORK)
        for at in range(0, d, B):
            j = at + tl.arange(0, B)
            x, _ = row_scores(X, KEEP, j, x_step, keep_step, True, d, HAS_KEEP, WORK)
            best = tl.maximum(best, x)
        top = tl.max(best, 0)
        size = tl.max(tl.zeros((B,), tl.int32), 0)
        for at in range(0, d, B):
            j = at + tl.arange(0, B)
            x, _ = row_scores(X, KEEP, j, x_step, keep_step, True, d, HAS_KEEP, WORK)
            kept = (x > -float("inf")).to(tl.int32)
            # Finite: a quotient of -inf would become NaN in the products with zero.
            value = tl.maximum((x - top) / gamma, -1e30)
            tl.store(Z + size + tl.cumsum(kept, 0) - 1, value, mask=kept > 0)
            size += tl.sum(kept, 0)
        tl.debug_barrier()
        map_compacted(
            Z, PLACE + row * d, U + row * d, size, tl.load(THETA + row * theta_row), KIND, B, WORK, EPS
        )
        tl.debug_barrier()
        # Expand in place, from the right: a weight never moves to the left.
        for chunk in range(tl.cdiv(d, B)):
            j = (tl.cdiv(d, B) - 1 - chunk) * B + tl.arange(0, B)
            x, _ = row_scores(X, KEEP, j, x_step, keep_step, True, d, HAS_KEEP, WORK)
            kept = (x > -float("inf")).to(tl.int32)
            size -= tl.sum(kept, 0)
            y = tl.load(Z + size + tl.cumsum(kept, 0) - 1, mask=kept > 0, other=0.0)
            tl.debug_barrier()
            tl.store(Z + j, y, mask=j < d)
            tl.debug_barrier()
