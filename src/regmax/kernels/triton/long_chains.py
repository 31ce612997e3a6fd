"""The Jacobian product of fusedmax on rows of any length: segments that are open at a chunk's end are carried on."""

import triton
import triton.language as tl

from regmax.kernels.triton.chains import positions, segment_add
from regmax.kernels.triton.chunks import weights_chunk
from regmax.kernels.triton.products import difference_sign, nearest


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
        y, v, kept = weights_chunk(Y, V, KEEP, j, y_step, v_step, keep_step, live, d, HAS_KEEP, WORK)
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
        y, v, kept = weights_chunk(Y, V, KEEP, j, y_step, v_step, keep_step, live, d, HAS_KEEP, WORK)
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
        y, v, kept = weights_chunk(Y, V, KEEP, j, y_step, v_step, keep_step, live, d, HAS_KEEP, WORK)
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
