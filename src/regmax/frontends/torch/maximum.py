"""max_Omega from the native core, in plain eager mode: value and weights in one call.

The weights are optimal, so the gradient of the value is y in the scores, -gamma dOmega(y)/dtheta in the mapping's
strength, and -Omega(y) in gamma. The core gives the last two as one number per row.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, is_grad_enabled

from regmax.frontends.torch import ops
from regmax.frontends.torch.autograd import PlainFunction
from regmax.frontends.torch.modes import is_plain

# max_Omega of (x, theta, gamma) in tensor operations, which give derivatives of any order.
Objective = Callable[[Tensor, Any, Any], Tensor]


class Maximum(PlainFunction):  # type: ignore[misc]
    """max_Omega of contiguous rows, without the last dimension; strengths are numbers or tensors."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, theta: Any, gamma: Any, call: tuple[Tensor | None, str, Objective]
    ) -> Tensor:
        keep, kernel, ctx.objective = call
        learned = any(ctx.needs_input_grad[1:3])
        value, y, slopes = ops.call_maximum(x, keep, theta, gamma, kernel, learned=learned)
        strengths = [part if isinstance(part, Tensor) else None for part in (theta, gamma)]
        ctx.save_for_backward(x, y, slopes, *strengths)
        ctx.numbers = theta, gamma
        return value

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Any:
        x, y, slopes, *tensors = ctx.saved_tensors
        strengths = [number if own is None else own for number, own in zip(ctx.numbers, tensors, strict=True)]
        if is_grad_enabled() or not is_plain(v):
            return *_differentiable(ctx, v, x, *strengths), None
        rows = v.unsqueeze(-1)
        x_grad = rows * y if ctx.needs_input_grad[0] else None
        grads = [
            (rows * slopes[k]).sum_to_size(own.shape).to(own.dtype) if needed else None
            for k, (own, needed) in enumerate(zip(strengths, ctx.needs_input_grad[1:3], strict=True))
        ]
        return x_grad, *grads, None


def _differentiable(ctx: Any, v: Tensor, *inputs: Any) -> list[Tensor | None]:
    """The gradients through tensor operations, differentiable any number of times."""
    needed = [own for own, wanted in zip(inputs, ctx.needs_input_grad, strict=False) if wanted]
    with torch.enable_grad():
        grads = iter(torch.autograd.grad(ctx.objective(*inputs), needed, v, create_graph=True))
    return [next(grads) if wanted else None for wanted in ctx.needs_input_grad[:3]]


def maximum(
    x: Tensor, keep: Tensor | None, theta: Any, gamma: Any, kernel: str, objective: Objective
) -> Tensor:
    """max_Omega of contiguous CPU rows; `objective` is the same in tensor operations."""
    theta = 0.0 if theta is None else theta
    if is_grad_enabled() and any(isinstance(own, Tensor) and own.requires_grad for own in (x, theta, gamma)):
        return Maximum.apply(x, theta, gamma, (keep, kernel, objective))
    return ops.call_maximum(x, keep, theta, gamma, kernel, learned=False)[0]
