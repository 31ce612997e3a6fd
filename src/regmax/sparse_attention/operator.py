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

_Optional = Tensor | None


def attend(
    operands: core.Operands, problem: core.Problem, wanted: Wanted, seed: _Optional
) -> tuple[Tensor, ...]:
    """The output, and as `wanted` the dense weights; head dimensions are padded, all tensors contiguous."""
    keep = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in operands)
    tensors = (*operands, problem.mask, problem.mask_slices, problem.bias_slices, seed)
    numbers = (
        problem.kernel,
        problem.theta,
        problem.gamma,
        problem.scale,
        problem.is_causal,
        problem.dropout_p,
    )
    out, y, *_ = _attention(*tensors, *numbers, keep, wanted == "dense")
    return (out, y) if wanted == "dense" else (out,)


def _capacity(q: Tensor, k: Tensor) -> int:
    """How many weights are saved: 32 per query and every sixteenth, far above what attention-like scores need."""
    return prod(q.shape[:-1]) * (k.shape[-2] // 16 + 32)  # `Size.numel` would fix the shapes


@torch.library.custom_op("regmax::attention", mutates_args=(), device_types="cpu")
def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: _Optional,
    thetas: _Optional,
    gammas: _Optional,
    mask: _Optional,
    mask_slices: _Optional,
    bias_slices: _Optional,
    seed: _Optional,
    kernel: str,
    theta: float,
    gamma: float,
    scale: float,
    is_causal: bool,
    dropout_p: float,
    keep: bool,
    dense: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The output, the dense weights, and the four parts of the sparse ones; empty if not wanted."""
    strengths = kernel, theta, gamma, scale, is_causal, mask, mask_slices, bias_slices, dropout_p
    problem = _problem(*strengths, seed)
    operands = _contiguous(core.Operands(q, k, v, bias, thetas, gammas))
    capacity = _capacity(q, k) if keep else 0
    out, y, weights = core.forward(problem, operands, keep=keep, dense=dense, capacity=capacity)
    if weights is None:
        weights = core.Weights(
            *(q.new_empty(0, dtype=dtype) for dtype in (torch.int64, torch.int32, q.dtype, torch.uint8))
        )
    return out, q.new_empty(0) if y is None else y, *weights


@_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
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
def _backward(
    out_grad: Tensor,
    y_grad: _Optional,
    starts: Tensor,
    columns: Tensor,
    values: Tensor,
    joined: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: _Optional,
    thetas: _Optional,
    gammas: _Optional,
    mask: _Optional,
    mask_slices: _Optional,
    bias_slices: _Optional,
    seed: _Optional,
    kernel: str,
    theta: float,
    gamma: float,
    scale: float,
    is_causal: bool,
    dropout_p: float,
    wants_bias: bool,
    wants_thetas: bool,
    wants_gammas: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of q, k, v, the bias, thetas and gammas; empty if not wanted."""
    strengths = kernel, theta, gamma, scale, is_causal, mask, mask_slices, bias_slices, dropout_p
    problem = _problem(*strengths, seed)
    operands = _contiguous(core.Operands(q, k, v, bias, thetas, gammas))
    weights = core.Weights(starts, columns, values, joined)
    y_grad = None if y_grad is None else y_grad.contiguous()
    wanted = wants_bias, wants_thetas, wants_gammas
    grads = core.backward(problem, operands, weights, out_grad.contiguous(), y_grad, wanted)
    # Outputs must not share memory: a strength per query gets the core's own tensor.
    return tuple(q.new_empty(0) if grad is None else grad for grad in grads)  # type: ignore[return-value]


@_backward.register_fake
def _(
    out_grad: Tensor, y_grad: _Optional, *others: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    q, operands, wanted = others[4], others[4:10], (True, True, True, *others[-3:])
    return tuple(  # type: ignore[return-value]
        torch.empty_like(x, memory_format=torch.contiguous_format)
        if each and x is not None
        else q.new_empty(0)
        for x, each in zip(operands, wanted, strict=True)
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[2:], *inputs[:10])
    ctx.numbers, ctx.dense = inputs[10:16], inputs[17]
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


def _problem(
    kernel: str,
    theta: float,
    gamma: float,
    scale: float,
    is_causal: bool,
    mask: _Optional,
    mask_slices: _Optional,
    bias_slices: _Optional,
    dropout_p: float,
    seed: _Optional,
) -> core.Problem:
    mask, mask_slices, bias_slices = (
        None if x is None else x.contiguous() for x in (mask, mask_slices, bias_slices)
    )
    number = 0 if seed is None else int(seed)
    return core.Problem(
        kernel, theta, gamma, scale, is_causal, mask, mask_slices, bias_slices, dropout_p, number, True
    )


def _contiguous(operands: core.Operands) -> core.Operands:
    return core.Operands(*(None if x is None else x.contiguous() for x in operands))  # type: ignore[arg-type]
