"""Reading rows of any length in chunks, for Jacobian products."""

import triton
import triton.language as tl

from regmax.kernels.triton.row_kernels import row_scores


@triton.jit
def weights_chunk(
    Y, V, KEEP, j, y_step, v_step, keep_step, live, d, HAS_KEEP: tl.constexpr, WORK: tl.constexpr
):
    """Weights and directions, 0 at deleted positions, and which positions are kept."""
    y, kept = row_scores(Y, KEEP, j, y_step, keep_step, live, d, HAS_KEEP, WORK)
    v = tl.load(V + j * v_step, mask=kept, other=0.0).to(WORK)
    return tl.where(kept, y, 0.0), v, kept
