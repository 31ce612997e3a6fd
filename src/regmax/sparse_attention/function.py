"""Fused attention in eager mode: the core's two passes as one differentiable function."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from regmax.kernels.native import attention as core

Wanted = Literal["output", "dense", "sparse"]
Gradients = tuple[Tensor | None, ...]


def attend(
    operands: core.Operands, problem: core.Problem, wanted: Wanted, again: Callable[..., Gradients]
) -> tuple[Tensor, ...]:
    """The output, and as `wanted` the dense weights or the parts of the sparse ones.

    Args:
        operands: the tensors to differentiate; head dimensions of q, k and v need not be padded.
        problem: the other arguments.
        wanted: the sparse weights carry no gradients.
        again: computes the gradients from the operands and the outputs' gradients, differentiably.
    """
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in operands):
        outputs: tuple[Tensor, ...] = SparseAttention.apply(*operands, problem, again, wanted)  # type: ignore[no-untyped-call]
        return outputs
    out, y, weights = core.forward(
        problem, padded(operands), keep=wanted == "sparse", dense=wanted == "dense"
    )
    return (trimmed(out, operands.v), *((y,) if y is not None else ()), *(weights or ()))


class SparseAttention(Function):
    """`attend` with gradients."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, ...]:
        *tensors, problem, again, wanted = arguments
        operands = core.Operands(*tensors)
        out, y, weights = core.forward(problem, padded(operands), keep=True, dense=wanted == "dense")
        assert weights is not None
        ctx.save_for_backward(*operands, *weights)
        ctx.set_materialize_grads(False)
        ctx.problem, ctx.again = problem, again
        out = trimmed(out, operands.v)
        if wanted == "sparse":
            ctx.mark_non_differentiable(*weights)
            return (out, *weights)
        return (out,) if y is None else (out, y)

    @staticmethod
    def backward(ctx: Any, out_grad: Tensor | None, *others: Tensor | None) -> Gradients:
        saved = ctx.saved_tensors
        operands, weights = core.Operands(*saved[:6]), core.Weights(*saved[6:])
        y_grad = others[0] if len(others) == 1 else None
        if out_grad is None:
            out_grad = operands.q.new_zeros(*operands.q.shape[:-1], operands.v.shape[-1])
        if torch.is_grad_enabled():
            return (*ctx.again(operands, out_grad, y_grad), None, None, None)
        y_grad = None if y_grad is None else y_grad.contiguous()
        grads = core.backward(
            ctx.problem, padded(operands), weights, pad_heads(out_grad), y_grad, ctx.needs_input_grad[3:6]
        )
        return (*trimmed_gradients(grads, operands), None, None, None)


def padded(operands: core.Operands) -> core.Operands:
    """The operands with padded head dimensions."""
    return operands._replace(q=pad_heads(operands.q), k=pad_heads(operands.k), v=pad_heads(operands.v))


def pad_heads(x: Tensor) -> Tensor:
    """Contiguous, with the head dimension zero-padded to a multiple of 16, which does not change the result."""
    missing = -x.shape[-1] % 16
    return functional.pad(x, (0, missing)) if missing else x.contiguous()


def trimmed(x: Tensor, like: Tensor) -> Tensor:
    """Without the padding of the head dimension."""
    return x if x.shape[-1] == like.shape[-1] else x[..., : like.shape[-1]]


def trimmed_gradients(grads: core.Operands, operands: core.Operands) -> core.Operands:
    """Gradients without the padding of head dimensions."""
    return grads._replace(
        q=trimmed(grads.q, operands.q), k=trimmed(grads.k, operands.k), v=trimmed(grads.v, operands.v)
    )
