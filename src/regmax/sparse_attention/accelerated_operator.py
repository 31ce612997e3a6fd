"""Attention by Triton kernels as an operator for `torch.compile`: a `triton_op`, whose kernels the compiler sees."""

from typing import Any

import torch
from torch import Tensor

from regmax.kernels import triton
from regmax.kernels.native.attention import Operands, Problem

_Optional = Tensor | None

# Older versions of torch have no such operators: under their compiler attention on an accelerator is dense.
EXISTS = triton.installed() and hasattr(torch.library, "triton_op")


def attend(operands: Operands, problem: Problem, seed: Tensor) -> Tensor:
    """The output in float32; head dimensions are padded, all tensors contiguous."""
    tensors = (*operands, problem.mask, problem.mask_slices, problem.bias_slices, seed)
    numbers = (
        problem.kernel,
        problem.theta,
        problem.gamma,
        problem.scale,
        problem.is_causal,
        problem.dropout_p,
    )
    out: Tensor = torch.ops.regmax.triton_attention(*tensors, *numbers)[0]
    return out


def _forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: _Optional,
    thetas: _Optional,
    gammas: _Optional,
    mask: _Optional,
    mask_slices: _Optional,
    bias_slices: _Optional,
    seed: Tensor,
    kernel: str,
    theta: float,
    gamma: float,
    scale: float,
    is_causal: bool,
    dropout_p: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The output, and the five parts of `kernels.triton.attention.Weights`."""
    from regmax.kernels.triton import attention as kernels

    problem = _problem(mask, mask_slices, bias_slices, kernel, theta, gamma, scale, is_causal, dropout_p)
    out, weights = kernels.forward(problem, Operands(q, k, v, bias, thetas, gammas), seed)
    return out, *weights


def _backward(
    out_grad: Tensor,
    values: Tensor,
    columns: Tensor,
    ranks: Tensor,
    counts: Tensor,
    kept: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: _Optional,
    thetas: _Optional,
    gammas: _Optional,
    mask: _Optional,
    mask_slices: _Optional,
    bias_slices: _Optional,
    seed: Tensor,
    kernel: str,
    theta: float,
    gamma: float,
    scale: float,
    is_causal: bool,
    dropout_p: float,
    wants_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of q, k, v, the bias, thetas and gammas, with their types; empty if there are none."""
    from regmax.kernels.triton import attention as kernels

    problem = _problem(mask, mask_slices, bias_slices, kernel, theta, gamma, scale, is_causal, dropout_p)
    operands = Operands(q, k, v, bias, thetas, gammas)
    weights = kernels.Weights(values, columns, ranks, counts, kept)
    grads = kernels.backward(
        problem, operands, weights, out_grad.contiguous(), seed, wants_bias=wants_bias, deterministic=False
    )
    return tuple(  # type: ignore[return-value]
        q.new_empty(0) if grad is None or given is None else grad.to(given.dtype).reshape(given.shape)
        for grad, given in zip(grads, operands, strict=True)
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:], *inputs[:10])
    ctx.numbers = inputs[10:]
    ctx.mark_non_differentiable(*output[1:])


def _gradients(ctx: Any, out_grad: Tensor, *_: Any) -> tuple[_Optional, ...]:
    wanted = ctx.needs_input_grad[:6]
    grads = torch.ops.regmax.triton_attention_backward(out_grad, *ctx.saved_tensors, *ctx.numbers, wanted[3])
    return (*(grad if each else None for grad, each in zip(grads, wanted, strict=True)), *(None,) * 10)


def _problem(
    mask: _Optional,
    mask_slices: _Optional,
    bias_slices: _Optional,
    kernel: str,
    theta: float,
    gamma: float,
    scale: float,
    is_causal: bool,
    dropout_p: float,
) -> Problem:
    return Problem(
        kernel,
        theta,
        gamma,
        scale,
        is_causal,
        mask,
        mask_slices,
        bias_slices,
        dropout_p,
        seed=0,
        recompute=False,
    )


if EXISTS:
    _operator: Any = torch.library.triton_op("regmax::triton_attention", _forward, mutates_args=())
    torch.library.triton_op("regmax::triton_attention_backward", _backward, mutates_args=())
    _operator.register_autograd(_gradients, setup_context=_setup_context)
