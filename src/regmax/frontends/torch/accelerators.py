"""The Triton kernels on accelerators' tensors, which autograd.py differentiates.

In plain eager mode they are called directly, under transforms and tracers by the operators of accelerated_ops.py, which
is imported with the first such call: torch imports its compiler to define them.
"""

from importlib import import_module
from typing import Any

from torch import Tensor

from regmax.frontends.torch.modes import is_plain
from regmax.kernels import triton

# Tests of the front end set this, to run the kernels on CPU tensors by Triton's interpreter.
interpreting = False

Theta = Tensor | float | None


def has_kernel(x: Tensor, kernel: str) -> bool:
    """Whether a Triton kernel computes this mapping on this tensor's device."""
    return (x.is_cuda or (interpreting and x.is_cpu)) and kernel in triton.CHOSEN and triton.available()


def argmax(x: Tensor, keep: Tensor | None, theta: Theta, kernel: str) -> Tensor:
    """Pi(x; theta) of rows along the last dimension."""
    rows = x.reshape(-1, x.shape[-1])
    mask, strength = _mask(keep, x), _strength(theta, x)
    if is_plain(x):
        return triton.argmax(kernel, rows, mask, strength).reshape(x.shape)
    return _operators().argmax(rows, mask, *_split(strength), kernel).reshape(x.shape)


def product(v: Tensor, y: Tensor, keep: Tensor | None, theta: Theta, kernel: str) -> Tensor:
    """J v, with J the Jacobian of a kernel at its result `y`."""
    directions, weights = (each.reshape(-1, y.shape[-1]) for each in (v.expand_as(y), y))
    mask, strength = _mask(keep, y), _strength(theta, y)
    if is_plain(v):
        return triton.jacobian_product(kernel, weights, directions, mask, strength).reshape(y.shape)
    return _operators().product(directions, weights, mask, *_split(strength), kernel).reshape(y.shape)


def strength_grads(
    v: Tensor, y: Tensor, keep: Tensor | None, theta: Tensor, kernel: str
) -> tuple[Tensor, Tensor]:
    """J v, and the derivative of <v, y> in each row's theta, shaped like y[..., :1]."""
    directions, weights = (each.reshape(-1, y.shape[-1]) for each in (v.expand_as(y), y))
    mask, thetas = _mask(keep, y), _strength(theta, y)
    if is_plain(v):
        product, grads, _ = triton.strength_grads(kernel, weights, directions, mask, thetas)
    else:
        product, grads = _operators().strength_grads(directions, weights, mask, thetas, kernel)
    return product.reshape(y.shape), grads.reshape(*y.shape[:-1], 1)


def _mask(keep: Tensor | None, x: Tensor) -> Tensor | None:
    return None if keep is None else keep.expand(x.shape).reshape(-1, x.shape[-1])


def _strength(theta: Theta, x: Tensor) -> Theta:
    return theta.expand(*x.shape[:-1], 1).reshape(-1) if isinstance(theta, Tensor) else theta


def _split(theta: Theta) -> tuple[Tensor | None, float]:
    """A strength as two arguments of an operator: one per row, or one number."""
    if isinstance(theta, Tensor):
        return theta, 0.0
    return None, float("nan") if theta is None else float(theta)


def _operators() -> Any:
    return import_module("regmax.frontends.torch.accelerated_ops")
