"""float16 and bfloat16 rows in plain eager mode: the core converts them, block by block.

The backward pass never reads half-precision weights: the bits suffice for sparsemax and fusedmax, and the other kernels
save float32 weights.
"""

from typing import Any

from torch import Tensor, is_grad_enabled
from torch._C._functorch import is_legacy_batchedtensor

from regmax.frontends.torch import ops, structure
from regmax.frontends.torch.autograd import PlainFunction, full_weights, product
from regmax.frontends.torch.modes import is_plain


class HalfArgmax(PlainFunction):  # type: ignore[misc]
    """Pi(x / gamma) of half-precision rows, with numbers for theta and gamma."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, call: tuple[Tensor | None, float, float, str]) -> Tensor:
        keep, theta, gamma, kernel = call
        bits = structure.new_half_bits(x, kernel)
        extra = structure.new_extra(x, kernel, learned=False)
        y = ops.call_argmax_learned(x, keep, theta, gamma, kernel, bits, extra)
        ctx.save_for_backward(y, extra, bits, keep)
        ctx.strengths = theta, gamma, kernel
        return y

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Any:
        y, extra, bits, keep = ctx.saved_tensors
        theta, gamma, kernel = ctx.strengths
        if not (is_grad_enabled() or is_legacy_batchedtensor(v)) and is_plain(v):
            return ops.call_product_learned(v, y, bits, keep, theta, gamma, kernel, extra, None), None
        return (product(v.float(), full_weights(y, extra), bits, keep, theta, kernel) / gamma).to(
            v.dtype
        ), None


def argmax(x: Tensor, keep: Tensor | None, theta: float, gamma: float, kernel: str) -> Tensor:
    """Pi(x / gamma) of contiguous half-precision rows on the CPU."""
    if x.requires_grad and is_grad_enabled():
        return HalfArgmax.apply(x, (keep, theta, gamma, kernel))
    return ops.call_argmax_learned(x, keep, theta, gamma, kernel, None, None)
