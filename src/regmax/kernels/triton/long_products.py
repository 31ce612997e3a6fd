"""Jacobian products, and the gradients of strengths, of rows of any length: in passes over chunks of the row.

A tile is (R, B): B scores of R rows. What a chunk needs of the chunks before it is carried in registers, so that
neither the length of a row nor the size of its support is limited. The formulas are those of `products`.
"""

import triton
import triton.language as tl

from regmax.kernels.triton.chains import positions, segment_add
from regmax.kernels.triton.products import (
    difference_sign,
    entmax_strengths,
    nearest,
    oscarmax_sums,
    pnorm_gradients,
)
from regmax.kernels.triton.row_kernels import (
    ENTMAX_15,
    FUSEDMAX,
    OSCARMAX,
    SPARSEMAX,
    SQPNORMMAX,
    SQPNORMMAX_15,
    row_scores,
)
from regmax.kernels.triton.simplex import power


@triton.jit
def _chunk(Y, V, KEEP, j, y_step, v_step, keep_step, live, d, HAS_KEEP: tl.constexpr, WORK: tl.constexpr):
    """Weights and directions, 0 at deleted positions, and which positions are kept."""
    y, kept = row_scores(Y, KEEP, j, y_step, keep_step, live, d, HAS_KEEP, WORK)
    v = tl.load(V + j * v_step, mask=kept, other=0.0).to(WORK)
    return tl.where(kept, y, 0.0), v, kept


@triton.jit
def _last(x, index, B: tl.constexpr):
    """The last column of a tile."""
    return tl.sum(tl.where(index == B - 1, x, 0), 1)


@triton.jit
def _known(x, flags, carry):
    """The latest flagged value up to every slot, or that of the chunks before."""
    value, known = tl.associative_scan((x, flags), 1, nearest)
    return tl.where(known != 0, value, carry[:, None])


@triton.jit
def _preceding(x, carry, index):
    """The entry before every slot; that of the first one is carried."""
    return tl.where(index == 0, carry[:, None], tl.gather(x, tl.maximum(index - 1, 0), 1))


@triton.jit
def _slopes(y, theta, KIND: tl.constexpr):
    """s of J = diag(s) - ...: 1 on the support for sparsemax, y^(2 - theta) for the others."""
    support = y > 0
    if KIND == SPARSEMAX:
        return support.to(y.dtype)
    elif KIND == ENTMAX_15:
        return tl.sqrt(y)
    else:
        return tl.where(support, power(tl.where(support, y, 1.0), (2 - theta)[:, None]), 0.0)


@triton.jit
def smooth_in_chunks(
    Y, V, KEEP, OUT, theta, gamma, live, d, y_step, v_step, keep_step,
    KIND: tl.constexpr, HAS_KEEP: tl.constexpr, WORK: tl.constexpr, R: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """The mappings without groups: sums over the row, then the product.

    For sqpnormmax J v = [c s (v - share) - r y (<y, v> - share sum y)] / (p - 1), c = N^(p - 2), r = (2 - p) / N^2.
    """
    IS_PNORM: tl.constexpr = (KIND == SQPNORMMAX) | (KIND == SQPNORMMAX_15)
    zero = tl.zeros((R,), WORK)
    total, along, weight, inner, mass, logs = zero, zero, zero, zero, zero, zero
    spoiled = tl.zeros((R,), tl.int32)
    for at in range(0, d, B):
        j = at + tl.arange(0, B)[None, :]
        y, v, kept = _chunk(Y, V, KEEP, j, y_step, v_step, keep_step, live, d, HAS_KEEP, WORK)
        spoiled = tl.maximum(spoiled, tl.max((y != y).to(tl.int32), 1))
        y = tl.where(y > 0, y, 0.0)
        s = _slopes(y, theta, KIND)
        total += tl.sum(s, 1)
        along += tl.sum(s * v, 1)
        if IS_PNORM:
            positive = tl.where(y > 0, y, 1.0)
            powers = tl.where(y > 0, power(positive, theta[:, None]), 0.0)
            weight += tl.sum(y, 1)
            inner += tl.sum(y * v, 1)
            mass += tl.sum(powers, 1)
            logs += tl.sum(powers * tl.log(positive), 1)
    lead, rank_one = zero + 1, zero
    log_norm, slope = zero, zero
    if IS_PNORM:
        mass = tl.where(mass > 0, mass, 1.0)
        log_norm = tl.log(mass) / theta
        slope = (logs / mass - log_norm) / theta
        lead = tl.exp((theta - 2) * log_norm) / (theta - 1)
        rank_one = (2 - theta) * tl.exp(-2 * log_norm) / (theta - 1)
    below = lead * total - rank_one * weight * weight
    share = (lead * along - rank_one * inner * weight) / tl.where(below == 0, 1.0, below)
    rest = rank_one * (inner - share * weight)
    by_theta, by_gamma = zero, zero
    for at in range(0, d, B):
        j = at + tl.arange(0, B)[None, :]
        y, v, kept = _chunk(Y, V, KEEP, j, y_step, v_step, keep_step, live, d, HAS_KEEP, WORK)
        y = tl.where(y > 0, y, 0.0)
        product = lead[:, None] * _slopes(y, theta, KIND) * (v - share[:, None])
        if IS_PNORM:
            product = product - rest[:, None] * y
            penalty, gradient = pnorm_gradients(y, theta, log_norm, slope)
        elif KIND == SPARSEMAX:
            penalty, gradient = tl.zeros((R, B), WORK), y
        else:
            penalty, gradient = entmax_strengths(y, theta)
        product = tl.where(y > 0, product, 0.0) / gamma[:, None]
        product = tl.where(kept & (spoiled > 0)[:, None], float("nan"), product)
        by_theta += tl.sum(product * penalty, 1)
        by_gamma += tl.sum(product * gradient, 1)
        tl.store(OUT + j, product, mask=live & (j < d))
    return by_theta, by_gamma


@triton.jit
def chain_in_chunks(
    Y, V, KEEP, OUT, lam, gamma, live, d, y_step, v_step, keep_step,
    HAS_KEEP: tl.constexpr, WORK: tl.constexpr, R: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """fusedmax: running means of segments from the left, whose last one the segment copies from the right.

    An edge of the penalty contributes the difference of the products at its ends, with the sign of that of the weights.
    """
    index = positions(R, B)
    free = (lam == 0)[:, None]
    zero = tl.zeros((R,), WORK)
    none = zero - 1  # no neighbour
    total, along, before = zero, zero, none
    size = tl.zeros((R,), tl.int32)
    support = tl.zeros((R,), tl.int32)
    spoiled = tl.zeros((R,), tl.int32)
    for at in range(0, d, B):
        j = at + index
        y, v, kept = _chunk(Y, V, KEEP, j, y_step, v_step, keep_step, live, d, HAS_KEEP, WORK)
        spoiled = tl.maximum(spoiled, tl.max((y != y).to(tl.int32), 1))
        latest = _known(y, kept.to(tl.int32), before)
        left = _preceding(latest, before, index)
        before = _last(latest, index, B)
        start = (kept & ((left != y) | free)).to(tl.int32)
        sums, fresh = tl.associative_scan((v, start), 1, segment_add)
        sums = sums + tl.where(fresh != 0, 0.0, total[:, None])
        sizes, fresh = tl.associative_scan((kept.to(tl.int32), start), 1, segment_add)
        sizes = sizes + tl.where(fresh != 0, 0, size[:, None])
        total, size = _last(sums, index, B), _last(sizes, index, B)
        along += tl.sum(tl.where(y > 0, v, 0.0), 1)
        support += tl.sum((y > 0).to(tl.int32), 1)
        tl.store(OUT + j, sums / tl.maximum(sizes, 1), mask=live & (j < d))
    centre = along / tl.maximum(support, 1)
    tl.debug_barrier()
    after, mean = none, zero
    for chunk in range(tl.cdiv(d, B)):
        # From the right: the slots of a chunk are read in reverse.
        j = (tl.cdiv(d, B) - chunk) * B - 1 - index
        y, v, kept = _chunk(Y, V, KEEP, j, y_step, v_step, keep_step, live, d, HAS_KEEP, WORK)
        latest = _known(y, kept.to(tl.int32), after)
        right = _preceding(latest, after, index)
        after = _last(latest, index, B)
        end = (kept & ((right != y) | free)).to(tl.int32)
        means = _known(tl.load(OUT + j, mask=live & (j < d), other=0.0), end, mean)
        mean = _last(means, index, B)
        product = tl.where(y > 0, means - centre[:, None], 0.0) / gamma[:, None]
        product = tl.where(kept & (spoiled > 0)[:, None], float("nan"), product)
        tl.debug_barrier()
        tl.store(OUT + j, product, mask=live & (j < d))
    tl.debug_barrier()
    by_theta, by_weights, before, product_before = zero, zero, none, zero
    for at in range(0, d, B):
        j = at + index
        y, v, kept = _chunk(Y, V, KEEP, j, y_step, v_step, keep_step, live, d, HAS_KEEP, WORK)
        product = tl.load(OUT + j, mask=live & (j < d), other=0.0)
        latest, latest_product = (
            _known(y, kept.to(tl.int32), before),
            _known(product, kept.to(tl.int32), product_before),
        )
        left, left_product = (
            _preceding(latest, before, index),
            _preceding(latest_product, product_before, index),
        )
        before, product_before = _last(latest, index, B), _last(latest_product, index, B)
        by_theta += tl.sum(tl.where(kept, difference_sign(y, left) * (product - left_product), 0.0), 1)
        by_weights += tl.sum(tl.where(kept, product * y, 0.0), 1)
    return by_theta, by_weights + lam * by_theta


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
        y, v, kept = _chunk(Y, V, KEEP, j, y_step, v_step, keep_step, live, d, HAS_KEEP, WORK)
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
        y, v, kept = _chunk(Y, V, KEEP, j, y_step, v_step, keep_step, live, d, HAS_KEEP, WORK)
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


@triton.jit
def product_in_chunks(
    Y, V, KEEP, OUT, WEIGHT, DIRECTION, theta, gamma, live, d, y_step, v_step, keep_step,
    KIND: tl.constexpr, HAS_KEEP: tl.constexpr, WORK: tl.constexpr, R: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """J v / gamma of R rows, and the derivatives of <v, y> in theta and gamma. Pointers are (R, 1)."""
    if KIND == FUSEDMAX:
        by_theta, by_gamma = chain_in_chunks(
            Y, V, KEEP, OUT, theta, gamma, live, d, y_step, v_step, keep_step, HAS_KEEP, WORK, R, B
        )
    elif KIND == OSCARMAX:
        by_theta, by_gamma = clusters_in_chunks(
            Y, V, KEEP, OUT, WEIGHT, DIRECTION, theta, gamma, live, d, y_step, v_step, keep_step,
            HAS_KEEP, WORK, R, B,
        )  # fmt: skip
    else:
        by_theta, by_gamma = smooth_in_chunks(
            Y, V, KEEP, OUT, theta, gamma, live, d, y_step, v_step, keep_step, KIND, HAS_KEEP, WORK, R, B
        )
    return -gamma * by_theta, -by_gamma


@triton.jit
def long_products(
    Y,
    V,
    KEEP,
    THETA,
    GAMMA,
    OUT,
    WEIGHT,
    DIRECTION,
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
    B: tl.constexpr,
    KIND: tl.constexpr,
    HAS_KEEP: tl.constexpr,
):
    """`row_products` for rows that are longer than a tile. WEIGHT and DIRECTION, like OUT, are scratch of oscarmax."""
    WORK: tl.constexpr = THETA.dtype.element_ty
    r = tl.program_id(0) * R + tl.arange(0, R)
    row, live = r.to(tl.int64), r < n
    theta = tl.load(THETA + row * theta_row, mask=live, other=1.5)
    gamma = tl.load(GAMMA + row * gamma_row, mask=live, other=1.5)
    column = row[:, None]
    by_theta, by_gamma = product_in_chunks(
        Y + column * y_row, V + column * v_row, KEEP + column * keep_row, OUT + column * d,
        WEIGHT + column * d, DIRECTION + column * d, theta, gamma, live[:, None], d, y_step, v_step, keep_step,
        KIND, HAS_KEEP, WORK, R, B,
    )  # fmt: skip
    tl.store(THETA_GRAD + row, by_theta, mask=live)
    tl.store(GAMMA_GRAD + row, by_gamma, mask=live)
