"""The Triton kernels as operators, for transforms and tracers: of type `triton_op`, whose kernels the compiler sees.

An older torch gets opaque operators.
"""

from typing import Any

import torch
from torch import Tensor

from regmax.kernels import triton


def _operator(name: str) -> Any:
    if triton.installed() and hasattr(torch.library, "triton_op"):
        return torch.library.triton_op(name, mutates_args=())
    return torch.library.custom_op(name, mutates_args=())


@_operator("regmax::triton_argmax")
def argmax(x: Tensor, keep: Tensor | None, thetas: Tensor | None, theta: float, kernel: str) -> Tensor:
    """Pi(x; theta) of rows (n, d); strengths are one per row, `thetas`, or one number."""
    return triton.argmax(kernel, x, keep, theta if thetas is None else thetas)


@_operator("regmax::triton_product")
def product(
    v: Tensor, y: Tensor, keep: Tensor | None, thetas: Tensor | None, theta: float, kernel: str
) -> Tensor:
    """J v."""
    return triton.jacobian_product(kernel, y, v, keep, theta if thetas is None else thetas)


@_operator("regmax::triton_strength_grads")
def strength_grads(
    v: Tensor, y: Tensor, keep: Tensor | None, thetas: Tensor, kernel: str
) -> tuple[Tensor, Tensor]:
    """J v, and each row's gradient of theta."""
    x_grad, theta_grad, _ = triton.strength_grads(kernel, y, v, keep, thetas)
    return x_grad, theta_grad


if not hasattr(torch.library, "triton_op"):
    argmax.register_fake(lambda x, *_: torch.empty_like(x, memory_format=torch.contiguous_format))
    product.register_fake(lambda v, *_: torch.empty_like(v, memory_format=torch.contiguous_format))
    strength_grads.register_fake(
        lambda v, *_: (torch.empty_like(v, memory_format=torch.contiguous_format), v.new_empty(len(v), 1))
    )
