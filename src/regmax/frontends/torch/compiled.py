"""Mappings of rows under `torch.compile`: `torch.ops.regmax.rows`, opaque to the compiler, with its derivative.

One operator serves numbers and tensors as strengths, learned or not, and half precision; its backward is the core's
kernel, as in eager mode. Strengths are tensors: a number of an operator is a constant to the compiler, and annealing
would recompile at every step. The backward pass cannot be differentiated, as torch's compiled programs in general.
"""

from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from regmax.frontends.torch import ops, structure
from regmax.frontends.torch.modes import in_transform, is_exporting

_Optional = Tensor | None


def suits() -> bool:
    """Whether the compiler is tracing, but neither an exported program, which has no operators, nor a transform."""
    return is_compiling() and not is_exporting() and not in_transform()


def argmax(x: Tensor, keep: _Optional, theta: Any, gamma: Any, kernel: str) -> Tensor:
    """Pi(x / gamma; theta) on rows."""
    strengths = _tensor(0.0 if theta is None else theta), _tensor(gamma)
    learned = torch.is_grad_enabled() and any(own.requires_grad for own in strengths)
    return _rows(x, keep, *strengths, kernel, learned)[0]


def _tensor(strength: Any) -> Tensor:
    return strength if isinstance(strength, Tensor) else torch.ones((), dtype=torch.float64) * strength


@torch.library.custom_op("regmax::rows", mutates_args=(), device_types="cpu")
def _rows(
    x: Tensor, mask: _Optional, theta: Tensor, gamma: Tensor, kernel: str, learned: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The weights, what else the backward pass reads of them, and the bits; `learned`: for the strengths' gradients."""
    bits = x.new_empty(structure.full_bits_shape(x, kernel, learned=learned), dtype=torch.int64)
    extra = structure.new_extra(x, kernel, learned=learned)
    again = structure.reads_again(x, kernel, learned=learned)
    y = ops.call_argmax_learned(x.contiguous(), mask, theta, gamma, kernel, bits, extra, read_again=again)
    return y, x.new_empty(0) if extra is None else extra, bits


@_rows.register_fake
def _(
    x: Tensor, mask: _Optional, theta: Tensor, gamma: Tensor, kernel: str, learned: bool
) -> tuple[Tensor, Tensor, Tensor]:
    extra = structure.new_extra(x, kernel, learned=learned)
    return (
        torch.empty_like(x, memory_format=torch.contiguous_format),
        x.new_empty(0) if extra is None else extra,
        x.new_empty(structure.full_bits_shape(x, kernel, learned=learned), dtype=torch.int64),
    )


@torch.library.custom_op("regmax::rows_backward", mutates_args=(), device_types="cpu")
def _rows_backward(
    v: Tensor,
    y: Tensor,
    extra: Tensor,
    bits: Tensor,
    mask: _Optional,
    theta: Tensor,
    gamma: Tensor,
    kernel: str,
    learned: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, theta and gamma; the last two are empty unless `learned`."""
    arguments = v, y.contiguous(), bits.contiguous(), mask, theta, gamma, kernel
    weights = extra.contiguous() if extra.numel() else None
    if not learned:
        return ops.call_product_learned(*arguments, weights, None), y.new_empty(0), y.new_empty(0)
    x_grad, *rows = ops.call_strength_grads(*arguments, weights)
    # Clones: the outputs of an operator must not share memory.
    theta_grad, gamma_grad = (
        row.sum_to_size(own.shape).to(own.dtype).clone()
        for row, own in zip(rows, (theta, gamma), strict=True)
    )
    return x_grad, theta_grad, gamma_grad


@_rows_backward.register_fake
def _(v: Tensor, y: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    theta, gamma, learned = others[3], others[4], others[6]
    x_grad = torch.empty_like(y, memory_format=torch.contiguous_format)
    if not learned:
        return x_grad, y.new_empty(0), y.new_empty(0)
    return x_grad, theta.new_empty(theta.shape), gamma.new_empty(gamma.shape)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, mask, theta, gamma, ctx.kernel, ctx.learned = inputs
    ctx.save_for_backward(*output, mask, theta, gamma)
    ctx.set_materialize_grads(False)  # extra has no gradient


def _gradients(ctx: Any, v: _Optional, *_: Any) -> tuple[Any, ...]:
    if v is None:
        return (None,) * 6
    grads = _rows_backward(v, *ctx.saved_tensors, ctx.kernel, ctx.learned)
    x_grad, theta_grad, gamma_grad = (
        grad if needed else None
        for grad, needed in zip(grads, (ctx.needs_input_grad[i] for i in (0, 2, 3)), strict=True)
    )
    return x_grad, None, theta_grad, gamma_grad, None, None


_rows.register_autograd(_gradients, setup_context=_setup_context)
