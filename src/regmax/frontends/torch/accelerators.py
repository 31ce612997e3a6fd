"""The Triton kernels on accelerators' tensors, as operators that autograd.py differentiates.

In eager mode an operator's function runs directly. Under the compiler it is a `triton_op`, whose kernels the compiler
sees; an older torch gets an opaque operator.
"""

from typing import Any

import torch
from torch import Tensor

from regmax.kernels import triton

# Tests of the front end set this, to run the kernels on CPU tensors by Triton's interpreter.
interpreting = False

Theta = Tensor | float | None


def has_kernel(x: Tensor, kernel: str) -> bool:
    """Whether a Triton kernel computes this mapping on this tensor's device."""
    return (x.is_cuda or (interpreting and x.is_cpu)) and kernel in triton.CHOSEN and triton.available()


def _operator(name: str) -> Any:
    if triton.installed() and hasattr(torch.library, "triton_op"):
        return torch.library.triton_op(name, mutates_args=())
    return torch.library.custom_op(name, mutates_args=())


@_operator("regmax::triton_argmax")
def _argmax(x: Tensor, keep: Tensor | None, thetas: Tensor | None, theta: float, kernel: str) -> Tensor:
    return triton.argmax(kernel, x, keep, theta if thetas is None else thetas)


@_operator("regmax::triton_product")
def _product(
    v: Tensor, y: Tensor, keep: Tensor | None, thetas: Tensor | None, theta: float, kernel: str
) -> Tensor:
    return triton.jacobian_product(kernel, y, v, keep, theta if thetas is None else thetas)


@_operator("regmax::triton_strength_grads")
def _strength_grads(
    v: Tensor, y: Tensor, keep: Tensor | None, thetas: Tensor, kernel: str
) -> tuple[Tensor, Tensor]:
    product, theta_grad, _ = triton.strength_grads(kernel, y, v, keep, thetas)
    return product, theta_grad


if not hasattr(torch.library, "triton_op"):
    _argmax.register_fake(lambda x, *_: torch.empty_like(x, memory_format=torch.contiguous_format))
    _product.register_fake(lambda v, *_: torch.empty_like(v, memory_format=torch.contiguous_format))
    _strength_grads.register_fake(
        lambda v, *_: (torch.empty_like(v, memory_format=torch.contiguous_format), v.new_empty(len(v), 1))
    )


def argmax(x: Tensor, keep: Tensor | None, theta: Theta, kernel: str) -> Tensor:
    """Pi(x; theta) of rows along the last dimension."""
    rows = x.reshape(-1, x.shape[-1])
    return _argmax(rows, _mask(keep, x), *_strength(theta, x), kernel).reshape(x.shape)


def product(v: Tensor, y: Tensor, keep: Tensor | None, theta: Theta, kernel: str) -> Tensor:
    """J v, with J the Jacobian of a kernel at its result `y`."""
    rows = (each.reshape(-1, y.shape[-1]) for each in (v.expand_as(y), y))
    return _product(*rows, _mask(keep, y), *_strength(theta, y), kernel).reshape(y.shape)


def strength_grads(
    v: Tensor, y: Tensor, keep: Tensor | None, theta: Tensor, kernel: str
) -> tuple[Tensor, Tensor]:
    """J v, and the derivative of <v, y> in each row's theta, shaped like y[..., :1]."""
    rows = (each.reshape(-1, y.shape[-1]) for each in (v.expand_as(y), y))
    thetas, _ = _strength(theta, y)
    product, grads = _strength_grads(*rows, _mask(keep, y), thetas, kernel)
    return product.reshape(y.shape), grads.reshape(*y.shape[:-1], 1)


def _mask(keep: Tensor | None, x: Tensor) -> Tensor | None:
    return None if keep is None else keep.expand(x.shape).reshape(-1, x.shape[-1])


def _strength(theta: Theta, x: Tensor) -> tuple[Tensor | None, float]:
    if not isinstance(theta, Tensor):
        return None, float("nan") if theta is None else float(theta)
    return theta.expand(*x.shape[:-1], 1).reshape(-1), 0.0
