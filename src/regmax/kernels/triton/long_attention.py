"""Attention of queries with more candidates than slots, one at a time, in passes over the keys, on the device.

A fixed number of programs share the queries, each with scratch memory for one row of scores. They pass over the queries
whose candidates fitted, so that the host need not know whether there are others. Slow and exact, as `long_rows`.
"""

import triton
import triton.language as tl

from regmax.kernels.triton.attention_kernels import dropout_factor
from regmax.kernels.triton.long_products import product_in_chunks
from regmax.kernels.triton.long_rows import map_compacted


@triton.jit
def _allowed(MASK, BIAS, i, j, m, CAUSAL: tl.constexpr, HAS_MASK: tl.constexpr, HAS_BIAS: tl.constexpr):
    """Which of the keys j take part in query i, and their bias. MASK and BIAS point at the query's row."""
    allowed = j < m
    bias = tl.zeros(j.shape, tl.float32)
    if CAUSAL:
        allowed = allowed & (j <= i)
    if HAS_MASK:
        allowed = allowed & (tl.load(MASK + j, mask=allowed, other=0) != 0)
    if HAS_BIAS:
        bias = tl.load(BIAS + j, mask=allowed, other=0.0)
        allowed = allowed & (bias != -float("inf"))
    return allowed, bias


@triton.jit
def _slots(allowed, size):
    """The places of the keys that take part, in a row that already has `size` of them."""
    return size + tl.cumsum(allowed.to(tl.int32), 0) - 1


@triton.jit
def _weights(
    q, K, MASK, BIAS, Z, PLACE, U, i, stop, m, scale, theta, gamma, spoiled,
    B: tl.constexpr, CHUNK: tl.constexpr, D: tl.constexpr, KIND: tl.constexpr, CAUSAL: tl.constexpr,
    HAS_MASK: tl.constexpr, HAS_BIAS: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """Write the weights of a query's keys to Z, compacted to those that take part; NaN if it is spoiled."""
    e = tl.arange(0, D)
    size = tl.full((), 0, tl.int32)
    top = tl.full((), -float("inf"), tl.float32)
    for at in range(0, stop, B):
        j = at + tl.arange(0, B)
        allowed, bias = _allowed(MASK, BIAS, i, j, m, CAUSAL, HAS_MASK, HAS_BIAS)
        k = tl.load(K + j[:, None] * D + e[None, :], mask=allowed[:, None], other=0.0).to(tl.float32)
        x = tl.sum(k * q[None, :], 1) * scale + bias
        tl.store(Z + _slots(allowed, size), x, mask=allowed)
        top = tl.maximum(top, tl.max(tl.where(allowed, x, -float("inf")), 0))
        size += tl.sum(allowed.to(tl.int32), 0)
    tl.debug_barrier()
    for at in range(0, size, CHUNK):
        j = at + tl.arange(0, CHUNK)
        x = tl.load(Z + j, mask=j < size, other=0.0)
        value = tl.maximum((x - top) / gamma, -1e30)
        tl.store(Z + j, tl.where(spoiled, float("nan"), value), mask=j < size)
    tl.debug_barrier()
    if not spoiled:
        map_compacted(Z, PLACE, U, size, theta, KIND, CHUNK, tl.float32, EPS)
    tl.debug_barrier()
    return size


@triton.jit
def long_attention(
    Q,
    K,
    V,
    MASK,
    BIAS,
    MASK_SLICE,
    BIAS_SLICE,
    THETA,
    GAMMA,
    COUNT,
    SEED,
    SCORE,
    PLACE,
    U,
    OUT,
    rows,
    n,
    m,
    groups,
    scale,
    dropout,
    mask_slice,
    mask_row,
    bias_slice,
    bias_row,
    B: tl.constexpr,
    CHUNK: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    C: tl.constexpr,
    KIND: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_MASK: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    DROPOUT: tl.constexpr,
    EPS: tl.constexpr,
):
    """The outputs of the queries whose candidates overflowed."""
    d, e = tl.arange(0, D), tl.arange(0, E)
    for r in range(tl.program_id(0), rows, tl.num_programs(0)):
        if tl.load(COUNT + r) > C:
            row = tl.full((), 0, tl.int64) + r
            head, i = row // n, (row % n).to(tl.int32)
            # The number of this program; as a function of the query it need not be kept in registers.
            own = row % tl.num_programs(0) * m
            Z = SCORE + own
            keys, values = K + head // groups * m * D, V + head // groups * m * E
            mask, bias = MASK, BIAS
            if HAS_MASK:
                mask = MASK + tl.load(MASK_SLICE + head) * mask_slice + i.to(tl.int64) * mask_row
            if HAS_BIAS:
                bias = BIAS + tl.load(BIAS_SLICE + head) * bias_slice + i.to(tl.int64) * bias_row
            stop = m
            if CAUSAL:
                stop = tl.minimum(m, i + 1)
            q = tl.load(Q + row * D + d).to(tl.float32)
            _weights(
                q, keys, mask, bias, Z, PLACE + own, U + own, i, stop, m, scale,
                tl.load(THETA + row), tl.load(GAMMA + row), False, B, CHUNK, D, KIND, CAUSAL, HAS_MASK, HAS_BIAS, EPS,
            )  # fmt: skip
            size = tl.full((), 0, tl.int32)
            total = tl.zeros((E,), tl.float32)
            for at in range(0, stop, B):
                j = at + tl.arange(0, B)
                allowed, _ = _allowed(mask, bias, i, j, m, CAUSAL, HAS_MASK, HAS_BIAS)
                y = tl.load(Z + _slots(allowed, size), mask=allowed, other=0.0)
                size += tl.sum(allowed.to(tl.int32), 0)
                v = tl.load(values + j[:, None] * E + e[None, :], mask=(y > 0)[:, None], other=0.0)
                if DROPOUT:
                    y = y * dropout_factor(tl.load(SEED), row, j, dropout)
                total += tl.sum(y[:, None] * v.to(tl.float32), 0)
            tl.store(OUT + row * E + e, total)
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
    WANTS_BIAS: tl.constexpr,
    DROPOUT: tl.constexpr,
    EPS: tl.constexpr,
):
    """The gradients of the queries whose candidates overflowed, or that have NaN: their weights are computed again.

    Gradients of keys, values and the bias are added atomically.
    """
    d, e, origin = tl.arange(0, D), tl.arange(0, E), tl.zeros((1, 1), tl.int32)
    for r in range(tl.program_id(0), rows, tl.num_programs(0)):
        count = tl.load(COUNT + r)
        if (count > C) | (count < 0):
            row = tl.full((), 0, tl.int64) + r
            head, i = row // n, (row % n).to(tl.int32)
            own = row % tl.num_programs(0) * m
            Z, G, J = SCORE + own, DIRECTION + own, PRODUCT + own
            first = head // groups * m
            keys, values = K + first * D, V + first * E
            mask, bias = MASK, BIAS
            if HAS_MASK:
                mask = MASK + tl.load(MASK_SLICE + head) * mask_slice + i.to(tl.int64) * mask_row
            if HAS_BIAS:
                at_bias = tl.load(BIAS_SLICE + head) * bias_slice + i.to(tl.int64) * bias_row
                bias = BIAS + at_bias
            stop = m
            if CAUSAL:
                stop = tl.minimum(m, i + 1)
            theta, gamma = tl.load(THETA + row), tl.load(GAMMA + row)
            q = tl.load(Q + row * D + d).to(tl.float32)
            out_grad = tl.load(OUT_GRAD + row * E + e).to(tl.float32)
            _weights(
                q, keys, mask, bias, Z, PLACE + own, U + own, i, stop, m, scale, theta, gamma, count < 0,
                B, CHUNK, D, KIND, CAUSAL, HAS_MASK, HAS_BIAS, EPS,
            )  # fmt: skip
            size = tl.full((), 0, tl.int32)
            for at in range(0, stop, B):
                j = at + tl.arange(0, B)
                allowed, _ = _allowed(mask, bias, i, j, m, CAUSAL, HAS_MASK, HAS_BIAS)
                slot = _slots(allowed, size)
                y = tl.load(Z + slot, mask=allowed, other=0.0)
                # NaN differs from 0.
                used = (allowed & (y != 0))[:, None]
                at_value = j[:, None] * E + e[None, :]
                v = tl.load(values + at_value, mask=used, other=0.0).to(tl.float32)
                factor = tl.full((B,), 1.0, tl.float32)
                if DROPOUT:
                    factor = dropout_factor(tl.load(SEED), row, j, dropout)
                tl.store(G + slot, tl.sum(v * out_grad[None, :], 1) * factor, mask=allowed)
                share = (y * factor)[:, None] * out_grad[None, :]
                tl.atomic_add(V_GRAD + first * E + at_value, share, mask=used)
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
            for at in range(0, stop, B):
                j = at + tl.arange(0, B)
                allowed, _ = _allowed(mask, bias, i, j, m, CAUSAL, HAS_MASK, HAS_BIAS)
                g = tl.load(J + _slots(allowed, size), mask=allowed, other=0.0)
                size += tl.sum(allowed.to(tl.int32), 0)
                if WANTS_BIAS:
                    tl.atomic_add(BIAS_GRAD + at_bias + j, g, mask=allowed & (g != 0))
                used, at_key = (g != 0)[:, None], j[:, None] * D + d[None, :]
                k = tl.load(keys + at_key, mask=used, other=0.0).to(tl.float32)
                q_grad += tl.sum((g * scale)[:, None] * k, 0)
                tl.atomic_add(K_GRAD + first * D + at_key, (g * scale)[:, None] * q[None, :], mask=used)
            tl.store(Q_GRAD + row * D + d, q_grad)
            tl.debug_barrier()
