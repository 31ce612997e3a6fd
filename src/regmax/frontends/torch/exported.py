"""The mappings in exported programs.

`torch.export` records one operator, `torch.ops.regmax.weights`, for any number and length of rows. Unlike
`torch.ops.regmax.argmax` it has no bits, whose shape depends on the length, and it has its own derivatives. The core
computes it on the CPU, tensor operations elsewhere and without a core; a program that uses it needs
`import regmax.nn` before it is loaded. ONNX has no such operator: it receives the tensor operations.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from regmax.frontends.torch import autograd, ops
from regmax.frontends.torch.modes import below_autograd, in_transform, nested_forward_mode
from regmax.kernels import tensors

Theta = Tensor | float | None

# Not a `custom_op`: the derivatives of that one are those of reverse mode, and forward mode gets zeros without a word.
_library = torch.library.Library("regmax", "FRAGMENT")
_library.define("weights(Tensor x, Tensor? mask, Tensor? thetas, float theta, str kernel) -> Tensor")


def _weights(x: Tensor, mask: Tensor | None, thetas: Tensor | None, theta: float, kernel: str) -> Tensor:
    """The weights of the rows of `x`; strengths are one per row, `thetas`, or one number."""
    if autograd.has_kernel(x, kernel):
        return ops.call_argmax(x.contiguous(), mask, thetas, theta, 1.0, kernel, None)
    return tensors.argmax(kernel, x, mask, theta if thetas is None else thetas)


def _shape(x: Tensor, *arguments: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


class Weights(Function):
    """`torch.ops.regmax.weights` with derivatives in both modes, any number of times."""

    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        with below_autograd():
            return torch.ops.regmax.weights(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, mask, thetas, ctx.theta, ctx.kernel = inputs
        kept = x != -torch.inf
        saved = (output, kept if mask is None else kept & mask, thetas)
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor | None, ...]:
        y, keep, thetas = ctx.saved_tensors
        theta = ctx.theta if thetas is None else thetas
        x_grad = autograd.product(v, y, None, keep, theta, ctx.kernel)
        theta_grad = None
        if thetas is not None and ctx.needs_input_grad[2]:
            rows = -(x_grad * tensors.theta_gradient(ctx.kernel, y, keep, thetas)).sum(-1, keepdim=True)
            theta_grad = rows.sum_to_size(thetas.shape)
        return x_grad, None, theta_grad, None, None

    @staticmethod
    @nested_forward_mode
    def jvp(ctx: Any, saved: Any, x_t: Tensor | None, _mask: Any, thetas_t: Tensor | None, *_: Any) -> Tensor:
        y, keep, thetas = saved
        direction = torch.zeros_like(y) if x_t is None else x_t
        if thetas_t is not None:
            direction = direction - thetas_t * tensors.theta_gradient(ctx.kernel, y, keep, thetas)
        return autograd.product(direction, y, None, keep, ctx.theta if thetas is None else thetas, ctx.kernel)


def _differentiable(*arguments: Any) -> Tensor:
    if in_transform():
        raise NotImplementedError(
            "`torch.func.grad`, `jvp` and their kin do not differentiate exported programs. Use `torch.autograd`, or "
            "transform the model before it is exported."
        )
    return Weights.apply(*arguments)


_library.impl("weights", _weights, "CompositeExplicitAutograd")
_library.impl("weights", _differentiable, "Autograd")
torch.library.register_fake("regmax::weights", _shape, lib=_library)


def argmax(x: Tensor, keep: Tensor | None, theta: Theta, kernel: str) -> Tensor:
    """Pi(x; theta) on rows, while a program is exported."""
    if torch.onnx.is_in_onnx_export():
        return _argmax_for_onnx(x, keep, theta, kernel)
    thetas, number = (theta, 0.0) if isinstance(theta, Tensor) else (None, float(theta or 0.0))
    return torch.ops.regmax.weights(x, keep, thetas, number, kernel)


def _argmax_for_onnx(x: Tensor, keep: Tensor | None, theta: Theta, kernel: str) -> Tensor:
    """The tensor operations on contiguous rows (n, d): the strides of other layouts would enter ONNX's loops."""
    d = x.shape[-1]
    if isinstance(theta, Tensor):
        theta = theta.expand(*x.shape[:-1], 1).reshape(-1, 1)
    rows = None if keep is None else keep.expand(x.shape).reshape(-1, d)
    return tensors.argmax(kernel, x.reshape(-1, d).contiguous(), rows, theta).reshape(x.shape)
