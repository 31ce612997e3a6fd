"""The gradients of queries with more candidates than slots, one at a time, as in `long_attention`."""

import triton
import triton.language as tl

from regmax.kernels.triton.attention_scores import at_head, end_of_keys
from regmax.kernels.triton.dropout import dropout_factor
from regmax.kernels.triton.long_attention import query_weights, seen_keys, slots_of
from regmax.kernels.triton.long_products import product_in_chunks


@triton.jit
def _add(SUM, value, mask, ATOMIC: tl.constexpr):
    """Add to numbers in memory, atomically or by reading and writing them."""
    if ATOMIC:
        tl.atomic_add(SUM, value, mask=mask)
    else:
        tl.store(SUM, tl.load(SUM, mask=mask, other=0.0) + value, mask=mask)


@triton.jit
def _add_gradients(
    Q, K, V, OUT_GRAD, MASK, BIAS, MASK_SLICE, BIAS_SLICE, THETA, GAMMA, SEED,
    SCORE, DIRECTION, PRODUCT, CLUSTER, PLACE, U, Q_GRAD, K_GRAD, V_GRAD, BIAS_GRAD, THETA_GRAD, GAMMA_GRAD,
    row, spoiled, n, m, groups, scale, dropout, mask_slice, mask_row, bias_slice, bias_row,
    B: tl.constexpr, CHUNK: tl.constexpr, SCAN: tl.constexpr, D: tl.constexpr, E: tl.constexpr, KIND: tl.constexpr,
    CAUSAL: tl.constexpr, HAS_MASK: tl.constexpr, HAS_BIAS: tl.constexpr, ATOMIC: tl.constexpr,
    WANTS_KEYS: tl.constexpr, WANTS_BIAS: tl.constexpr, DROPOUT: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """Write the gradients of one query and its strengths, and add those of what it shares with other queries."""
    d, e, origin = tl.arange(0, D), tl.arange(0, E), tl.zeros((1, 1), tl.int32)
    head, i = row // n, (row % n).to(tl.int32)
    own = tl.program_id(0).to(tl.int64) * m
    Z, G, J = SCORE + own, DIRECTION + own, PRODUCT + own
    first = head // groups * m
    keys, values = K + first * D, V + first * E
    mask = at_head(MASK, MASK_SLICE, head, mask_slice, HAS_MASK) + i.to(tl.int64) * mask_row
    bias = at_head(BIAS, BIAS_SLICE, head, bias_slice, HAS_BIAS) + i.to(tl.int64) * bias_row
    stop = end_of_keys(i, m, CAUSAL)
    theta, gamma = tl.load(THETA + row), tl.load(GAMMA + row)
    q = tl.load(Q + row * D + d).to(tl.float32)
    out_grad = tl.load(OUT_GRAD + row * E + e).to(tl.float32)
    query_weights(
        q, keys, mask, bias, Z, PLACE + own, U + own, i, stop, m, scale, theta, gamma, spoiled,
        B, CHUNK, D, KIND, CAUSAL, HAS_MASK, HAS_BIAS, EPS,
    )  # fmt: skip
    size = tl.full((), 0, tl.int32)
    for at in range(0, stop, B):
        j = at + tl.arange(0, B)
        allowed, _ = seen_keys(mask, bias, i, j, m, CAUSAL, HAS_MASK, HAS_BIAS)
        slot = slots_of(allowed, size)
        y = tl.load(Z + slot, mask=allowed, other=0.0)
        # NaN differs from 0.
        used = (allowed & (y != 0))[:, None]
        at_value = j[:, None] * E + e[None, :]
        v = tl.load(values + at_value, mask=used, other=0.0).to(tl.float32)
        factor = tl.full((B,), 1.0, tl.float32)
        if DROPOUT:
            factor = dropout_factor(tl.load(SEED), row, j, dropout)
        tl.store(G + slot, tl.sum(v * out_grad[None, :], 1) * factor, mask=allowed)
        if WANTS_KEYS:
            share = (y * factor)[:, None] * out_grad[None, :]
            _add(V_GRAD + first * E + at_value, share, used, ATOMIC)
        size += tl.sum(allowed.to(tl.int32), 0)
    tl.debug_barrier()
    by_theta, by_gamma = product_in_chunks(
        Z + origin, G + origin, Z + origin, J + origin,
        CLUSTER + 2 * own + origin, CLUSTER + 2 * own + m + origin,
        tl.zeros((1,), tl.float32) + theta, tl.zeros((1,), tl.float32) + gamma, origin == 0, size, 1, 1, 1,
        KIND, False, tl.float32, 1, SCAN,
    )  # fmt: skip
    tl.store(THETA_GRAD + row + tl.arange(0, 1), by_theta)
    tl.store(GAMMA_GRAD + row + tl.arange(0, 1), by_gamma)
    tl.debug_barrier()
    size = tl.full((), 0, tl.int32)
    q_grad = tl.zeros((D,), tl.float32)
    bias_grad = at_head(BIAS_GRAD, BIAS_SLICE, head, bias_slice, WANTS_BIAS) + i.to(tl.int64) * bias_row
    for at in range(0, stop, B):
        j = at + tl.arange(0, B)
        allowed, _ = seen_keys(mask, bias, i, j, m, CAUSAL, HAS_MASK, HAS_BIAS)
        g = tl.load(J + slots_of(allowed, size), mask=allowed, other=0.0)
        size += tl.sum(allowed.to(tl.int32), 0)
        if WANTS_BIAS:
            _add(bias_grad + j, g, allowed & (g != 0), ATOMIC)
        used, at_key = (g != 0)[:, None], j[:, None] * D + d[None, :]
        k = tl.load(keys + at_key, mask=used, other=0.0).to(tl.float32)
        q_grad += tl.sum((g * scale)[:, None] * k, 0)
        if WANTS_KEYS:
            _add(K_GRAD + first * D + at_key, (g * scale)[:, None] * q[None, :], used, ATOMIC)
    tl.store(Q_GRAD + row * D + d, q_grad)
    tl.debug_barrier()


@triton.jit
def long_attention_grads(
    Q,
    K,
    V,
    OUT_GRAD,
    MASK,
    BIAS,
    MASK_SLICE,
    BIAS_SLICE,
    THETA,
    GAMMA,
    COUNT,
    SEED,
    SCORE,
    DIRECTION,
    PRODUCT,
    CLUSTER,
    PLACE,
    U,
    Q_GRAD,
    K_GRAD,
    V_GRAD,
    BIAS_GRAD,
    THETA_GRAD,
    GAMMA_GRAD,
    rows,
    n,
    m,
    groups,
    owners,
    span,
    length,
    step,
    scale,
    dropout,
    mask_slice,
    mask_row,
    bias_slice,
    bias_row,
    B: tl.constexpr,
    CHUNK: tl.constexpr,
    SCAN: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    C: tl.constexpr,
    KIND: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_MASK: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    ATOMIC: tl.constexpr,
    WANTS_KEYS: tl.constexpr,
    WANTS_BIAS: tl.constexpr,
    DROPOUT: tl.constexpr,
    EPS: tl.constexpr,
):
    """The gradients of the queries whose candidates overflowed, or that have NaN: their weights are computed again.

    Owner o computes the queries o * span, o * span + step, ... below o * span + length, in this order. Gradients of
    keys, values and the bias are added atomically, or, without ATOMIC, read and written: no two owners may share any.
    """
    for owner in range(tl.program_id(0), owners, tl.num_programs(0)):
        for r in range(owner * span, tl.minimum(owner * span + length, rows), step):
            count = tl.load(COUNT + r)
            if (count > C) | (count < 0):
                _add_gradients(
                    Q, K, V, OUT_GRAD, MASK, BIAS, MASK_SLICE, BIAS_SLICE, THETA, GAMMA, SEED,
                    SCORE, DIRECTION, PRODUCT, CLUSTER, PLACE, U,
                    Q_GRAD, K_GRAD, V_GRAD, BIAS_GRAD, THETA_GRAD, GAMMA_GRAD,
                    tl.full((), 0, tl.int64) + r, count < 0, n, m, groups, scale, dropout,
                    mask_slice, mask_row, bias_slice, bias_row, B, CHUNK, SCAN, D, E, KIND, CAUSAL,
                    HAS_MASK, HAS_BIAS, ATOMIC, WANTS_KEYS, WANTS_BIAS, DROPOUT, EPS,
                )  # fmt: skip
