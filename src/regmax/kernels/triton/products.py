"""Jacobian products, and the gradients of strengths, on tiles of weights.

Each function takes tiles (R, B) of weights `y`, which are 0 at deleted positions and outside the row, and of directions
`v`, and returns J v. docs/derivations/jacobians.md has the formulas; those of the strengths are in `tensors.strength`.
"""

import triton
import triton.language as tl

from regmax.kernels.triton.chains import positions, segment_add
from regmax.kernels.triton.row_kernels import ENTMAX, ENTMAX_15, FUSEDMAX, OSCARMAX, SPARSEMAX, row_scores
from regmax.kernels.triton.simplex import power


@triton.jit
def centred(mean, v, support):
    """`mean` minus the mean of v over the support; group means have the same mean as v."""
    size = tl.maximum(tl.sum(support.to(tl.int32), 1), 1)
    centre = tl.sum(tl.where(support, v, 0.0), 1) / size
    return tl.where(support, mean - centre[:, None], 0.0)


@triton.jit
def sparsemax_product(y, v):
    """J v = v minus its mean over the support."""
    return centred(v, v, y > 0)


@triton.jit
def entmax_product(y, v, alpha, HALVES: tl.constexpr):
    """J = diag(s) - s s' / sum s, s = y^(2 - alpha); HALVES: alpha = 1.5."""
    support = y > 0
    if HALVES:
        s = tl.sqrt(y)
    else:
        s = tl.where(support, power(tl.where(support, y, 1.0), (2 - alpha)[:, None]), 0.0)
    total = tl.sum(s, 1)
    mean = tl.sum(s * v, 1) / tl.where(total > 0, total, 1.0)
    return s * (v - mean[:, None])


@triton.jit
def pnorm(y, p):
    """|y|_p, 1 in a row of zeros."""
    support = y > 0
    mass = tl.sum(tl.where(support, power(tl.where(support, y, 1.0), p[:, None]), 0.0), 1)
    return power(tl.where(mass > 0, mass, 1.0), 1 / p)


@triton.jit
def sqpnormmax_product(y, v, p):
    """J = M - M1 1'M / 1'M1, M = [ N^(p-2) diag(y^(2-p)) - (2 - p) N^(-2) y y' ] / (p - 1), N = |y|_p."""
    support = y > 0
    norm = pnorm(y, p)
    lead = power(norm, p - 2)[:, None] * power(tl.where(support, y, 1.0), (2 - p)[:, None])
    lead = tl.where(support, lead, 0.0)
    rank_one = (2 - p) / (norm * norm)
    ones = (lead - (rank_one * tl.sum(y, 1))[:, None] * y) / (p - 1)[:, None]
    straight = (lead * v - (rank_one * tl.sum(y * v, 1))[:, None] * y) / (p - 1)[:, None]
    total = tl.sum(ones, 1)
    share = tl.sum(straight, 1) / tl.where(total == 0, 1.0, total)
    return straight - ones * share[:, None]


@triton.jit
def nearest(value, known, next_value, next_known):
    """The latest value that is known."""
    return tl.where(next_known != 0, next_value, value), known | next_known


@triton.jit
def kept_neighbours(y, kept, index, C: tl.constexpr):
    """The weights of the nearest kept positions to the left and to the right, -1 if there is none."""
    flag = kept.to(tl.int32)
    y = tl.where(kept, y, 0.0)
    value, known = tl.associative_scan((y, flag), 1, nearest)
    place = tl.maximum(index - 1, 0)
    found = (index > 0) & (tl.gather(known, place, 1) != 0)
    left = tl.where(found, tl.gather(value, place, 1), -1.0)
    value, known = tl.associative_scan((y, flag), 1, nearest, reverse=True)
    place = tl.minimum(index + 1, C - 1)
    found = (index < C - 1) & (tl.gather(known, place, 1) != 0)
    return left, tl.where(found, tl.gather(value, place, 1), -1.0)


@triton.jit
def fusedmax_product(y, v, kept, left, right, lam):
    """The mean over every segment of equal weights, which may extend over deleted positions, minus that of v."""
    free = (lam == 0)[:, None]
    start = (kept & ((left != y) | free)).to(tl.int32)
    end = kept & ((right != y) | free)
    total, _ = tl.associative_scan((tl.where(kept, v, 0.0), start), 1, segment_add)
    size, _ = tl.associative_scan((kept.to(tl.int32), start), 1, segment_add)
    mean = tl.where(end, total / tl.maximum(size, 1), 0.0)
    mean, _ = tl.associative_scan((mean, end.to(tl.int32)), 1, nearest, reverse=True)
    return centred(mean, v, y > 0)


@triton.jit
def variation_gradient(y, left, right):
    """d sum |y_i+1 - y_i| / dy_i, given the weights of the neighbours, -1 for none."""
    return difference_sign(y, left) + difference_sign(y, right)


@triton.jit
def difference_sign(y, neighbour):
    """The sign of y minus the neighbour's weight; 0 if there is no neighbour."""
    sign = tl.where(y > neighbour, 1.0, tl.where(y < neighbour, -1.0, 0.0))
    return tl.where(neighbour < 0, 0.0, sign)


@triton.jit
def oscarmax_sums(y, Y, V, y_step, v_step, n, live, SUM: tl.constexpr):
    """For every weight of a tile: the sum of v over its cluster, the cluster's size, and the number of larger weights.

    Y and V point at the rows, (R, 1), whose first n entries are compared with the tile, in the same order for all
    members of a cluster; entries from `live` on, one number per row, are left out. SUM is the type of the sum.
    """
    total = tl.zeros(y.shape, SUM)
    size = tl.zeros(y.shape, tl.int32)
    above = tl.zeros(y.shape, tl.int32)
    for i in range(n):
        weight = tl.load(Y + i * y_step, mask=i < live, other=0.0).to(y.dtype)
        direction = tl.load(V + i * v_step, mask=i < live, other=0.0).to(SUM)
        same = (weight == y) & (weight > 0)
        total += tl.where(same, direction, 0.0)
        size += same.to(tl.int32)
        above += (weight > y).to(tl.int32)
    return total, size, above


@triton.jit
def oscarmax_product(y, v, Y, V, y_step, v_step, n, lam, live):
    """The mean over every cluster of equal weights minus that of v, and the mean place of the cluster."""
    total, size, above = oscarmax_sums(
        y, Y[:, None], V[:, None], y_step, v_step, n, tl.where(live, n, 0)[:, None], y.dtype
    )
    mean = tl.where((lam > 0)[:, None], total / tl.maximum(size, 1), v)
    place = above.to(y.dtype) + (size - 1).to(y.dtype) / 2
    return centred(mean, v, y > 0), place


@triton.jit
def pnorm_gradients(y, p, log_norm, slope):
    """d/dp grad Omega, and grad Omega, of sqpnormmax, given log N and d log N / dp; see `tensors.strength`."""
    support = y > 0
    positive = tl.where(support, y, 1.0)
    gradient = power(positive, (p - 1)[:, None]) * tl.exp((2 - p) * log_norm)[:, None]
    inner = tl.log(positive) + ((2 - p) * slope - log_norm)[:, None]
    return tl.where(support, gradient * inner, 0.0), tl.where(support, gradient, 0.0)


@triton.jit
def pnorm_strengths(y, p):
    """The same of a tile that holds the whole rows."""
    support = y > 0
    positive = tl.where(support, y, 1.0)
    mass = tl.where(support, power(positive, p[:, None]), 0.0)
    total = tl.sum(mass, 1)
    total = tl.where(total > 0, total, 1.0)
    log_norm = tl.log(total) / p
    slope = (tl.sum(mass * tl.log(positive), 1) / total - log_norm) / p
    return pnorm_gradients(y, p, log_norm, slope)


@triton.jit
def entmax_strengths(y, alpha):
    """d/dalpha grad Omega = log(y)^2 h((alpha - 1) log y), h(t) = d/dt (exp(t) - 1) / t, and grad Omega, of entmax."""
    support = y > 0
    logarithm = tl.log(tl.where(support, y, 1.0))
    t = (alpha - 1)[:, None] * logarithm
    near = tl.abs(t) < 0.5
    small, far = tl.where(near, t, 0.0), tl.where(near, 1.0, t)
    # h and (exp(t) - 1) / t by their power series for small t, where the closed forms lose digits.
    series = tl.full(y.shape, 1.0, y.dtype)
    ratio = tl.full(y.shape, 1.0, y.dtype)
    for k in tl.static_range(14, 0, -1):
        series = 1 + small * series * ((k + 1) / (k * (k + 2)))
        ratio = 1 + small * ratio / (k + 1)
    exponential = tl.exp(far)
    slope = tl.where(near, series / 2, (far * exponential - (exponential - 1)) / (far * far))
    ratio = tl.where(near, ratio, (exponential - 1) / far)
    by_alpha = tl.where(support, logarithm * logarithm * slope, 0.0)
    return by_alpha, tl.where(support, logarithm * ratio, 0.0)


@triton.jit
def smooth_product(y, v, theta, KIND: tl.constexpr):
    """J v of the mappings without groups."""
    if KIND == SPARSEMAX:
        return sparsemax_product(y, v)
    elif (KIND == ENTMAX) | (KIND == ENTMAX_15):
        return entmax_product(y, v, theta, KIND == ENTMAX_15)
    else:
        return sqpnormmax_product(y, v, theta)


@triton.jit
def smooth_strengths(y, theta, KIND: tl.constexpr):
    """d/dtheta grad Omega, and grad Omega, of the mappings without groups."""
    if KIND == SPARSEMAX:
        return tl.zeros(y.shape, y.dtype), y
    elif (KIND == ENTMAX) | (KIND == ENTMAX_15):
        return entmax_strengths(y, theta)
    else:
        return pnorm_strengths(y, theta)


@triton.jit
def row_products(
    Y,
    V,
    KEEP,
    THETA,
    GAMMA,
    OUT,
    THETA_GRAD,
    GAMMA_GRAD,
    n,
    d,
    y_row,
    y_step,
    v_row,
    v_step,
    keep_row,
    keep_step,
    theta_row,
    gamma_row,
    R: tl.constexpr,
    C: tl.constexpr,
    KIND: tl.constexpr,
    STRENGTHS: tl.constexpr,
    HAS_KEEP: tl.constexpr,
    EPS: tl.constexpr,
):
    """J v / gamma of R rows of at most C weights; with STRENGTHS the gradients of theta and gamma, a number per row.

    A row with NaN at a kept position is NaN at all of them.
    """
    WORK: tl.constexpr = THETA.dtype.element_ty
    r = tl.program_id(0) * R + tl.arange(0, R)
    row, live = r.to(tl.int64), r < n
    index = positions(R, C)
    theta = tl.load(THETA + row * theta_row, mask=live, other=1.5)
    gamma = tl.load(GAMMA + row * gamma_row, mask=live, other=1.5)
    Y, V = Y + row * y_row, V + row * v_row
    KEEP = KEEP + row[:, None] * keep_row
    y, kept = row_scores(Y[:, None], KEEP, index, y_step, keep_step, live[:, None], d, HAS_KEEP, WORK)
    v = tl.load(V[:, None] + index * v_step, mask=kept, other=0.0).to(WORK)
    spoiled = tl.max((kept & (y != y)).to(tl.int32), 1)[:, None] > 0
    y = tl.where(kept & ~spoiled, y, 0.0)
    if KIND == FUSEDMAX:
        left, right = kept_neighbours(y, kept, index, C)
        product = fusedmax_product(y, v, kept, left, right, theta)
    elif KIND == OSCARMAX:
        product, place = oscarmax_product(y, v, Y, V, y_step, v_step, d, theta, live)
    else:
        product = smooth_product(y, v, theta, KIND)
    product = tl.where(kept, product, 0.0) / gamma[:, None]
    product = tl.where(spoiled & kept, float("nan"), product)
    tl.store(OUT + row[:, None] * d + index, product, mask=live[:, None] & (index < d))
    if STRENGTHS:
        if KIND == FUSEDMAX:
            penalty = variation_gradient(y, left, right)
            gradient = y + theta[:, None] * penalty
        elif KIND == OSCARMAX:
            # The coefficient of the k-th largest weight is n - k; products sum to zero, so that n drops out.
            penalty = -place
            gradient = y + theta[:, None] * penalty
        else:
            penalty, gradient = smooth_strengths(y, theta, KIND)
        tl.store(THETA_GRAD + row, -gamma * tl.sum(product * penalty, 1), mask=live)
        tl.store(GAMMA_GRAD + row, -tl.sum(product * gradient, 1), mask=live)
