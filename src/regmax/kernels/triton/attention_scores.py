"""The scores of a block of queries and keys, and where a head's mask and bias begin.

Scores are never stored. Queries are (heads, n, D), keys and values (kv_heads, m, D), contiguous, D a power of two from
16 on; `groups` query heads share a head of keys. Offsets are 64-bit at the head, 32-bit inside it.
"""

import triton
import triton.language as tl


@triton.jit
def at_head(PART, SLICE, head, step, GIVEN: tl.constexpr):
    """The mask or bias of a head, whose slice several heads may share; without one any pointer serves."""
    if GIVEN:
        PART += tl.load(SLICE + head) * step
    return PART


@triton.jit
def end_of_keys(last, m, CAUSAL: tl.constexpr):
    """One more than the last key that queries up to `last` see."""
    stop = m
    if CAUSAL:
        stop = tl.minimum(m, last + 1)
    return stop


@triton.jit
def block_scores(
    q,
    K,
    MASK,
    BIAS,
    i,
    j,
    n,
    m,
    scale,
    mask_row,
    bias_row,
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_MASK: tl.constexpr,
    HAS_BIAS: tl.constexpr,
):
    """The scores of queries i and keys j, and which keys a query sees; K, MASK and BIAS point at their head."""
    e = tl.arange(0, D)
    k = tl.load(K + j[:, None] * D + e[None, :], mask=j[:, None] < m, other=0.0)
    x = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    seen = (i[:, None] < n) & (j[None, :] < m)
    if CAUSAL:
        seen = seen & (j[None, :] <= i[:, None])
    if HAS_MASK:
        keep = tl.load(MASK + i[:, None].to(tl.int64) * mask_row + j[None, :], mask=seen, other=0)
        seen = seen & (keep != 0)
    if HAS_BIAS:
        x += tl.load(BIAS + i[:, None].to(tl.int64) * bias_row + j[None, :], mask=seen, other=0.0)
    return x, seen
