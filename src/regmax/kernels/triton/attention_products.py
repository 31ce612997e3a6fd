"""Attention on the support: the sums of values, and the gradients of queries, keys, values and strengths."""

import triton
import triton.language as tl

from regmax.kernels.triton.chains import after, before, positions
from regmax.kernels.triton.products import (
    fusedmax_product,
    oscarmax_product,
    smooth_product,
    smooth_strengths,
    variation_gradient,
)
from regmax.kernels.triton.row_kernels import FUSEDMAX, OSCARMAX


@triton.jit
def attention_gather(
    P,
    COLUMN,
    COUNT,
    V,
    FACTOR,
    OUT,
    rows,
    n,
    m,
    groups,
    R: tl.constexpr,
    D: tl.constexpr,
    C: tl.constexpr,
    DROPOUT: tl.constexpr,
):
    """The weighted sums of the values, for R queries; NaN for a count of -1. Overflowed queries are left out."""
    r = tl.program_id(0) * R + tl.arange(0, R)
    row, live = r.to(tl.int64), r < rows
    e = tl.arange(0, D)
    count = tl.load(COUNT + row, mask=live, other=0)
    used = tl.where(count > C, 0, count)
    keys = row // n // groups * m
    total = tl.zeros((R, D), tl.float32)
    for s in range(tl.max(used, 0)):
        p = tl.load(P + row * C + s, mask=s < used, other=0.0)
        column = tl.load(COLUMN + row * C + s, mask=p > 0, other=0)
        v = tl.load(V + (keys + column)[:, None] * D + e[None, :], mask=(p > 0)[:, None], other=0.0)
        if DROPOUT:
            p = p * tl.load(FACTOR + row * C + s, mask=s < used, other=0.0)
        total += p[:, None] * v.to(tl.float32)
    total = tl.where((count < 0)[:, None], float("nan"), total)
    tl.store(OUT + row[:, None] * D + e[None, :], total, mask=live[:, None])


@triton.jit
def ranked_neighbours(y, ok, rank, kept, index, C: tl.constexpr):
    """The weights of the keys beside each candidate: of a candidate, 0 of any other key, -1 if there is none."""
    adjacent = (index > 0) & (before(rank, index) == rank - 1)
    left = tl.where(adjacent, before(y, index), tl.where(rank == 0, -1.0, 0.0))
    adjacent = (index < C - 1) & (after(rank, index, C) == rank + 1)
    right = tl.where(adjacent, after(y, index, C), tl.where(rank == kept[:, None] - 1, -1.0, 0.0))
    return left, right


@triton.jit
def attention_products(
    Q,
    K,
    V,
    OUT_GRAD,
    P,
    COLUMN,
    RANK,
    COUNT,
    KEPT,
    THETA,
    GAMMA,
    FACTOR,
    SCORE_GRAD,
    Q_GRAD,
    K_GRAD,
    V_GRAD,
    THETA_GRAD,
    GAMMA_GRAD,
    rows,
    n,
    m,
    groups,
    scale,
    R: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    C: tl.constexpr,
    KIND: tl.constexpr,
    ATOMIC: tl.constexpr,
    DROPOUT: tl.constexpr,
):
    """The gradients of R queries' scores on their support, and of the queries; with ATOMIC also of keys and values.

    The support is the saved one, so that the two passes cannot disagree. SCORE_GRAD first holds the weights' gradients.
    """
    r = tl.program_id(0) * R + tl.arange(0, R)
    row, live = r.to(tl.int64), r < rows
    d, e, index = tl.arange(0, D), tl.arange(0, E), positions(R, C)
    count = tl.load(COUNT + row, mask=live, other=0)
    count = tl.where(count > C, 0, tl.maximum(count, 0))
    keys = row // n // groups * m
    out_grad = tl.load(OUT_GRAD + row[:, None] * E + e[None, :], mask=live[:, None], other=0.0).to(tl.float32)
    for s in range(tl.max(count, 0)):
        p = tl.load(P + row * C + s, mask=s < count, other=0.0)
        used = p > 0
        column = tl.load(COLUMN + row * C + s, mask=used, other=0)
        at = (keys + column)[:, None] * E + e[None, :]
        v = tl.load(V + at, mask=used[:, None], other=0.0).to(tl.float32)
        factor = tl.full((R,), 1.0, tl.float32)
        if DROPOUT:
            factor = tl.load(FACTOR + row * C + s, mask=used, other=0.0)
        tl.store(SCORE_GRAD + row * C + s, tl.sum(out_grad * v, 1) * factor, mask=s < count)
        if ATOMIC:
            tl.atomic_add(V_GRAD + at, (p * factor)[:, None] * out_grad, mask=used[:, None])
    tl.debug_barrier()
    slots = row[:, None] * C + index
    ok = index < count[:, None]
    theta = tl.load(THETA + row, mask=live, other=1.5)
    gamma = tl.load(GAMMA + row, mask=live, other=1.0)
    y = tl.load(P + slots, mask=ok, other=0.0)
    v = tl.load(SCORE_GRAD + slots, mask=ok, other=0.0)
    if KIND == FUSEDMAX:
        rank = tl.load(RANK + slots, mask=ok, other=-7)
        left, right = ranked_neighbours(y, ok, rank, tl.load(KEPT + row, mask=live, other=0), index, C)
        product = fusedmax_product(y, v, ok, left, right, theta)
        penalty = variation_gradient(y, left, right)
        gradient = y + theta[:, None] * penalty
    elif KIND == OSCARMAX:
        most = tl.max(count, 0)
        product, place = oscarmax_product(y, v, P + row * C, SCORE_GRAD + row * C, 1, 1, most, theta, live)
        penalty = -place
        gradient = y + theta[:, None] * penalty
    else:
        product = smooth_product(y, v, theta, KIND)
        penalty, gradient = smooth_strengths(y, theta, KIND)
    product = tl.where(ok, product, 0.0) / gamma[:, None]
    tl.store(THETA_GRAD + row, -gamma * tl.sum(product * penalty, 1), mask=live)
    tl.store(GAMMA_GRAD + row, -tl.sum(product * gradient, 1), mask=live)
    tl.debug_barrier()
    tl.store(SCORE_GRAD + slots, product, mask=live[:, None])
    tl.debug_barrier()
    q = tl.load(Q + row[:, None] * D + d[None, :], mask=live[:, None], other=0.0).to(tl.float32)
    q_grad = tl.zeros((R, D), tl.float32)
    for s in range(tl.max(count, 0)):
        g = tl.load(SCORE_GRAD + row * C + s, mask=s < count, other=0.0) * scale
        used = g != 0
        column = tl.load(COLUMN + row * C + s, mask=used, other=0)
        at = (keys + column)[:, None] * D + d[None, :]
        k = tl.load(K + at, mask=used[:, None], other=0.0).to(tl.float32)
        q_grad += g[:, None] * k
        if ATOMIC:
            tl.atomic_add(K_GRAD + at, g[:, None] * q, mask=used[:, None])
    tl.store(Q_GRAD + row[:, None] * D + d[None, :], q_grad, mask=live[:, None])


@triton.jit
def attention_key_grads(
    Q,
    OUT_GRAD,
    P,
    SCORE_GRAD,
    ENTRY,
    START,
    FACTOR,
    K_GRAD,
    V_GRAD,
    scale,
    D: tl.constexpr,
    E: tl.constexpr,
    C: tl.constexpr,
    DROPOUT: tl.constexpr,
):
    """The gradients of one key and its value, without atomics: its entries, ENTRY[START[key]:START[key + 1]], in order.

    An entry is the number of a slot; entries are sorted by key, those of one key by query.
    """
    key = tl.program_id(0).to(tl.int64)
    d, e = tl.arange(0, D), tl.arange(0, E)
    k_grad = tl.zeros((D,), tl.float32)
    v_grad = tl.zeros((E,), tl.float32)
    for i in range(tl.load(START + key), tl.load(START + key + 1)):
        slot = tl.load(ENTRY + i)
        row = slot // C
        p = tl.load(P + slot)
        if DROPOUT:
            p = p * tl.load(FACTOR + slot)
        q = tl.load(Q + row * D + d).to(tl.float32)
        out_grad = tl.load(OUT_GRAD + row * E + e).to(tl.float32)
        k_grad += tl.load(SCORE_GRAD + slot) * scale * q
        v_grad += p * out_grad
    tl.store(K_GRAD + key * D + d, k_grad)
    tl.store(V_GRAD + key * E + e, v_grad)
