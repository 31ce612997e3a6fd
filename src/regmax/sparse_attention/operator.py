"""Fused attention as an operator for `torch.compile`: `torch.ops.regmax.attention`, opaque to the compiler.

The number of nonzero weights depends on the data, but a compiler needs shapes. So the operator saves weights up to a
capacity that follows from the shapes, and the backward pass recomputes the blocks of queries that did not fit.
"""

from math import prod
from typing import Any

import torch
from torch import Tensor

from regmax.kernels.native import attention as core
from regmax.kernels.native.rows import CHAINED
from regmax.sparse_attention.function import Wanted
from regmax.sparse_attention.signature import TENSORS, Six, declared, flattened, restored

_Optional = Tensor | None
_WEIGHTS = dict.fromkeys(("starts", "columns", "values", "joined"), Tensor)
_WANTED = dict.fromkeys(("wants_bias", "wants_thetas", "wants_gammas"), bool)


def attend(
    operands: core.Operands, problem: core.Problem, wanted: Wanted, seed: _Optional
) -> tuple[Tensor, ...]:
    """The output, and as `wanted` the dense weights; head dimensions are padded, all tensors contiguous."""
    keep = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in operands)
    out, y, *_ = _attention(*flattened(operands, problem, seed), keep, wanted == "dense")
    return (out, y) if wanted == "dense" else (out,)


def _capacity(q: Tensor, k: Tensor) -> int:
    """How many weights are saved: 32 per query and every sixteenth, far above what attention-like scores need."""
    return prod(q.shape[:-1]) * (k.shape[-2] // 16 + 32)  # `Size.numel` would fix the shapes


@torch.library.custom_op("regmax::attention", mutates_args=(), device_types="cpu")
@declared(after={"keep": bool, "dense": bool})
def _attention(*arguments: Any) -> Six:
    """The output, the dense weights, and the four parts of the sparse ones; empty if not wanted."""
    *shared, keep, dense = arguments
    operands, problem = _described(shared)
    q, k = operands.q, operands.k
    capacity = _capacity(q, k) if keep else 0
    out, y, weights = core.forward(problem, operands, keep=keep, dense=dense, capacity=capacity)
    if weights is None:
        weights = core.Weights(
            *(q.new_empty(0, dtype=dtype) for dtype in (torch.int64, torch.int32, q.dtype, torch.uint8))
        )
    return out, q.new_empty(0) if y is None else y, *weights


@_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *others: Any) -> Six:
    kernel, keep, dense = others[7], others[-2], others[-1]
    capacity = _capacity(q, k) if keep else 0
    rows = prod(q.shape[:-1]) + 1 if keep else 0
    return (
        q.new_empty(*q.shape[:-1], v.shape[-1]),
        q.new_empty(*q.shape[:-1], k.shape[-2]) if dense else q.new_empty(0),
        q.new_empty(rows, dtype=torch.int64),
        q.new_empty(capacity, dtype=torch.int32),
        q.new_empty(capacity),
        q.new_empty(capacity if kernel in CHAINED else 0, dtype=torch.uint8),
    )


@torch.library.custom_op("regmax::attention_backward", mutates_args=(), device_types="cpu")
@declared(before={"out_grad": Tensor, "y_grad": _Optional, **_WEIGHTS}, after=_WANTED)
def _backward(out_grad: Tensor, y_grad: _Optional, *arguments: Any) -> Six:
    """The gradients of all operands; empty if not wanted."""
    operands, problem = _described(arguments[4:-3])
    weights = core.Weights(*arguments[:4])
    y_grad = None if y_grad is None else y_grad.contiguous()
    grads = core.backward(problem, operands, weights, out_grad.contiguous(), y_grad, arguments[-3:])
    # Outputs must not share memory: a strength per query gets the core's own tensor.
    return tuple(operands.q.new_empty(0) if grad is None else grad for grad in grads)  # type: ignore[return-value]


@_backward.register_fake
def _(out_grad: Tensor, y_grad: _Optional, *others: Any) -> Six:
    q, operands, wanted = others[4], others[4:10], (True, True, True, *others[-3:])
    return tuple(  # type: ignore[return-value]
        torch.empty_like(x, memory_format=torch.contiguous_format)
        if each and x is not None
        else q.new_empty(0)
        for x, each in zip(operands, wanted, strict=True)
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[2:], *inputs[:TENSORS])
    ctx.numbers, ctx.dense = inputs[TENSORS:-2], inputs[-1]
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, out_grad: _Optional, y_grad: _Optional, *_: Any) -> tuple[_Optional, ...]:
    saved = ctx.saved_tensors
    if out_grad is None:
        q, v = saved[4], saved[6]
        out_grad = q.new_zeros(*q.shape[:-1], v.shape[-1])
    wanted = ctx.needs_input_grad[:6]
    grads = _backward(out_grad, y_grad if ctx.dense else None, *saved, *ctx.numbers, *wanted[3:])
    return (*(grad if each else None for grad, each in zip(grads, wanted, strict=True)), *(None,) * 12)


_attention.register_autograd(_gradients, setup_context=_setup_context)


def _described(arguments: Any) -> tuple[core.Operands, core.Problem]:
    """Contiguous operands, and the problem with contiguous masks and the seed as a number."""
    operands, problem, seed = restored(tuple(arguments))
    operands = core.Operands(*map(_contiguous, operands))  # type: ignore[arg-type]
    problem = problem._replace(
        mask=_contiguous(problem.mask),
        mask_slices=_contiguous(problem.mask_slices),
        bias_slices=_contiguous(problem.bias_slices),
        seed=0 if seed is None else int(seed),
        recompute=True,
    )
    return operands, problem


def _contiguous(x: _Optional) -> _Optional:
    return None if x is None else x.contiguous()
