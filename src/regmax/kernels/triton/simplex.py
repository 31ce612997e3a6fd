"""Thresholds of sparsemax, entmax and sqpnormmax on tiles of candidates.

A tile is (R, C): R rows, whose scores `x` are relative to the row's maximum, so at most 0; `ok` marks the slots in use.
All rows of a tile iterate until the last one is done. A row without candidates gets a meaningless, finite threshold.
"""

import triton
import triton.language as tl


@triton.jit
def log1p_minus(share):
    """log(1 - share) for share in [0, 1), by Kahan's correction of the rounding of 1 - share."""
    rest = 1 - share
    exact = rest == 1
    ratio = share / tl.where(exact, 1, 1 - rest)
    return tl.where(exact, -share, tl.log(tl.where(rest > 0, rest, 1)) * ratio)


@triton.jit
def power(base, exponent):
    """base^exponent for positive `base`."""
    return tl.exp(exponent * tl.log(base))


@triton.jit
def simplex_tau(x, ok):
    """The threshold of the projection onto the simplex, by Michelot's algorithm.

    Every round drops the scores below the mean of the rest minus its share of 1; the count ends the loop, so that
    rounding cannot prolong it.
    """
    count = tl.sum(ok.to(tl.int32), 1)
    tau = (tl.sum(tl.where(ok, x, 0), 1) - 1) / tl.maximum(count, 1)
    tau = tl.maximum(tau, -1)
    go = 1
    while go > 0:
        inside = ok & (x > tau[:, None])
        left = tl.sum(inside.to(tl.int32), 1)
        tau = tl.where(left > 0, (tl.sum(tl.where(inside, x, 0), 1) - 1) / tl.maximum(left, 1), tau)
        go = tl.max((left < count).to(tl.int32), 0)
        count = left
    return tau


@triton.jit
def simplex_weights(x, ok):
    """Weights of sparsemax."""
    tau = simplex_tau(x, ok)
    return tl.where(ok, tl.maximum(x - tau[:, None], 0), 0)


@triton.jit
def tsallis15_reach(x, ok, EPS: tl.constexpr):
    """m = max - tau of 1.5-entmax on x / 2, whose weights are (x / 2 + m)_+^2.

    Newton's method from m = 1 on sum (x / 2 + m)_+^2 = 1, a convex, increasing function: m decreases to the root.
    """
    m = tl.full((x.shape[0],), 1.0, x.dtype)
    go = 1
    while go > 0:
        z = tl.where(ok, tl.maximum(x / 2 + m[:, None], 0), 0)
        step = (tl.sum(z * z, 1) - 1) / tl.maximum(2 * tl.sum(z, 1), EPS)
        m = m - tl.maximum(step, 0)
        go = tl.max((step > 4 * EPS).to(tl.int32), 0)
    return m


@triton.jit
def tsallis15_weights(x, ok, EPS: tl.constexpr):
    """Weights of 1.5-entmax."""
    m = tsallis15_reach(x, ok, EPS)
    z = tl.where(ok, tl.maximum(x / 2 + m[:, None], 0), 0)
    return z * z


@triton.jit
def tsallis_ratios(gap, ok, m, a):
    """a gap / m, 0 outside the support, and r = (1 - a gap / m)^(1/a), which is exp(-gap / m) at a = 0."""
    scaled = gap / m
    inside = ok & (a * scaled < 1)
    share = tl.where(inside, a * scaled, 0)
    growth = tl.where(share > 0, -log1p_minus(share) / tl.where(share > 0, share, 1), 1)
    return share, tl.where(inside, tl.exp(-scaled * growth), 0)


@triton.jit
def tsallis_step(m, a, total, slope):
    """Newton's next m for m S^a = 1, S = `total`; see `tensors.simplex.tsallis_argmax` for the derivation."""
    step = (1 - tl.exp(-(tl.log(m) + a * tl.log(total)))) * total / slope
    return m * (1 - tl.maximum(step, 0)), step


@triton.jit
def tsallis_reach(x, ok, a, EPS: tl.constexpr):
    """m of entmax with alpha - 1 = a, one per row: scores below max - m / a have no weight."""
    m = tl.full((x.shape[0],), 1.0, x.dtype)
    go = 1
    rounds = 0
    while (go > 0) & (rounds < 64):
        share, r = tsallis_ratios(-x, ok, m[:, None], a[:, None])
        total = tl.sum(r, 1)
        used = total > 0
        slope = tl.sum(r / (1 - share), 1)
        m, step = tsallis_step(m, a, tl.where(used, total, 1), tl.where(used, slope, 1))
        go = tl.max((step > 4 * EPS).to(tl.int32), 0)
        rounds += 1
    return m


@triton.jit
def tsallis_weights(x, ok, a, EPS: tl.constexpr):
    """Weights of entmax for any alpha."""
    m = tsallis_reach(x, ok, a, EPS)
    _, r = tsallis_ratios(-x, ok, m[:, None], a[:, None])
    total = tl.sum(r, 1)
    return r / tl.where(total > 0, total, 1)[:, None]


@triton.jit
def pnorm_ratios(gap, ok, m, q, HALVES: tl.constexpr):
    """r = (1 - gap / m)_+ and r^(q - 2), 0 outside the support; HALVES: p = 1.5, so q = 3."""
    inside = ok & (gap < m)
    share = tl.where(inside, gap / m, 0)
    r = tl.where(inside, 1 - share, 0)
    if HALVES:
        return r, r
    return r, tl.where(inside, tl.exp((q - 2) * log1p_minus(share)), 0)


@triton.jit
def pnorm_step(m, low, high, q, s_0, s_1, s_2):
    """Newton's next m for F(m) = m S_(q-1) S_q^(2/q - 1) = 1, kept between the bounds; and its relative change."""
    value = m * s_1 * power(s_2, 2 / q - 1)
    low, high = tl.where(value < 1, m, low), tl.where(value < 1, high, m)
    step = (1 - 1 / value) / ((q - 1) * s_0 / s_1 - (q - 2) * s_1 / s_2)
    newton = tl.minimum(tl.maximum(m - m * step, low), high)
    return newton, low, high, tl.abs(newton - m) / m


@triton.jit
def pnorm_weights(x, ok, p, EPS: tl.constexpr, HALVES: tl.constexpr):
    """Weights of sqpnormmax; see `tensors.simplex.squared_pnorm_argmax` for the equation."""
    q = p / (p - 1)
    count = tl.maximum(tl.sum(ok.to(tl.int32), 1), 1).to(x.dtype)
    low = power(count, -2 / q)
    high = tl.full((x.shape[0],), 1.0, x.dtype)
    m = high
    go = 1
    rounds = 0
    while (go > 0) & (rounds < 64):
        r, lead = pnorm_ratios(-x, ok, m[:, None], q[:, None], HALVES)
        s_0, s_1, s_2 = tl.sum(lead, 1), tl.sum(lead * r, 1), tl.sum(lead * r * r, 1)
        used = s_2 > 0
        m, low, high, change = pnorm_step(
            m, low, high, q, tl.where(used, s_0, 1), tl.where(used, s_1, 1), tl.where(used, s_2, 1)
        )
        go = tl.max((used & (change > 4 * EPS)).to(tl.int32), 0)
        rounds += 1
    r, lead = pnorm_ratios(-x, ok, m[:, None], q[:, None], HALVES)
    y = lead * r
    total = tl.sum(y, 1)
    return y / tl.where(total > 0, total, 1)[:, None]
