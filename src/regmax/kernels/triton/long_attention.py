"""Attention of queries with more candidates than slots, one at a time, in passes over the keys, on the device.

A fixed number of programs share the queries, each with scratch memory for one row of scores. They pass over the queries
whose candidates fitted, so that the host need not know whether there are others. Slow and exact, as `long_rows`.
"""

import triton
import triton.language as tl

from regmax.kernels.triton.attention_scores import at_head, end_of_keys
from regmax.kernels.triton.dropout import dropout_factor
from regmax.kernels.triton.long_rows import map_compacted


@triton.jit
def seen_keys(MASK, BIAS, i, j, m, CAUSAL: tl.constexpr, HAS_MASK: tl.constexpr, HAS_BIAS: tl.constexpr):
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
def slots_of(allowed, size):
    """The places of the keys that take part, in a row that already has `size` of them."""
    return size + tl.cumsum(allowed.to(tl.int32), 0) - 1


@triton.jit
def query_weights(
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
        allowed, bias = seen_keys(MASK, BIAS, i, j, m, CAUSAL, HAS_MASK, HAS_BIAS)
        k = tl.load(K + j[:, None] * D + e[None, :], mask=allowed[:, None], other=0.0).to(tl.float32)
        x = tl.sum(k * q[None, :], 1) * scale + bias
        tl.store(Z + slots_of(allowed, size), x, mask=allowed)
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
            mask = at_head(MASK, MASK_SLICE, head, mask_slice, HAS_MASK) + i.to(tl.int64) * mask_row
            bias = at_head(BIAS, BIAS_SLICE, head, bias_slice, HAS_BIAS) + i.to(tl.int64) * bias_row
            stop = end_of_keys(i, m, CAUSAL)
            q = tl.load(Q + row * D + d).to(tl.float32)
            query_weights(
                q, keys, mask, bias, Z, PLACE + own, U + own, i, stop, m, scale,
                tl.load(THETA + row), tl.load(GAMMA + row), False, B, CHUNK, D, KIND, CAUSAL, HAS_MASK, HAS_BIAS, EPS,
            )  # fmt: skip
            size = tl.full((), 0, tl.int32)
            total = tl.zeros((E,), tl.float32)
            for at in range(0, stop, B):
                j = at + tl.arange(0, B)
                allowed, _ = seen_keys(mask, bias, i, j, m, CAUSAL, HAS_MASK, HAS_BIAS)
                y = tl.load(Z + slots_of(allowed, size), mask=allowed, other=0.0)
                size += tl.sum(allowed.to(tl.int32), 0)
                v = tl.load(values + j[:, None] * E + e[None, :], mask=(y > 0)[:, None], other=0.0)
                if DROPOUT:
                    y = y * dropout_factor(tl.load(SEED), row, j, dropout)
                total += tl.sum(y[:, None] * v.to(tl.float32), 0)
            tl.store(OUT + row * E + e, total)
            tl.debug_barrier()
