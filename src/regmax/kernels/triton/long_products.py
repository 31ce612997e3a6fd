"""Jacobian products, and the gradients of strengths, of rows of any length: in passes over chunks of the row.

A tile is (R, B): B scores of R rows. What a chunk needs of the chunks before it is carried in registers, so that
neither the length of a row nor the size of its support is limited. The formulas are those of `products`.
"""

import triton
import triton.language as tl

from regmax.kernels.triton.chunks import weights_chunk
from regmax.kernels.triton.long_chains import chain_in_chunks
from regmax.kernels.triton.long_clusters import clusters_in_chunks
from regmax.kernels.triton.products import entmax_strengths, pnorm_gradients
from regmax.kernels.triton.row_kernels import (
    ENTMAX_15,
    FUSEDMAX,
    OSCARMAX,
    SPARSEMAX,
    SQPNORMMAX,
    SQPNORMMAX_15,
)
from regmax.kernels.triton.simplex import power


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
        y, v, kept = weights_chunk(Y, V, KEEP, j, y_step, v_step, keep_step, live, d, HAS_KEEP, WORK)
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
        y, v, kept = weights_chunk(Y, V, KEEP, j, y_step, v_step, keep_step, live, d, HAS_KEEP, WORK)
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
