"""Attention by Triton kernels as an operator for `torch.compile`: a `triton_op`, whose kernels the compiler sees."""

from typing import Any

import torch
from torch import Tensor

from regmax.kernels import triton
from regmax.kernels.native.attention import Operands, Problem
from regmax.sparse_attention.signature import TENSORS, Six, declared, flattened, restored

# Older versions of torch have no such operators: under their compiler attention on an accelerator is dense.
EXISTS = triton.installed() and hasattr(torch.library, "triton_op")
_GIVEN = dict.fromkeys(("out_grad", "values", "columns", "ranks", "counts", "kept"), Tensor)


def attend(operands: Operands, problem: Problem, seed: Tensor) -> Tensor:
    """The output in float32; head dimensions are padded, all tensors contiguous."""
    _define()
    out: Tensor = torch.ops.regmax.triton_attention(*flattened(operands, problem, seed))[0]
    return out


@declared()
def _forward(*arguments: Any) -> Six:
    """The output, and the five parts of `kernels.triton.candidates.Weights`."""
    from regmax.kernels.triton import attention as kernels

    operands, problem, seed = restored(arguments)
    assert seed is not None
    out, weights = kernels.forward(problem, operands, seed)
    return out, *weights


@declared(before=_GIVEN, after={"wants_bias": bool, "deterministic": bool})
def _backward(out_grad: Tensor, *arguments: Any) -> Six:
    """The gradients with the operands' types; empty if there are none."""
    from regmax.kernels.triton import attention as kernels
    from regmax.kernels.triton.candidates import Weights

    *parts, wants_bias, deterministic = arguments
    operands, problem, seed = restored(tuple(parts[5:]))
    assert seed is not None
    grads = kernels.backward(
        problem, operands, Weights(*parts[:5]), out_grad.contiguous(), seed,
        wants_bias=wants_bias, deterministic=deterministic,
    )  # fmt: skip
    return tuple(  # type: ignore[return-value]
        operands.q.new_empty(0)
        if grad is None or given is None
        else grad.to(given.dtype).reshape(given.shape)
        for grad, given in zip(grads, operands, strict=True)
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:], *inputs[:TENSORS])
    ctx.numbers = inputs[TENSORS:]
    ctx.mark_non_differentiable(*output[1:])


def _gradients(ctx: Any, out_grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    wanted, deterministic = ctx.needs_input_grad[:6], torch.are_deterministic_algorithms_enabled()
    grads = torch.ops.regmax.triton_attention_backward(
        out_grad, *ctx.saved_tensors, *ctx.numbers, wanted[3], deterministic
    )
    return (*(grad if each else None for grad, each in zip(grads, wanted, strict=True)), *(None,) * 10)


def _define() -> None:
    """Define the operators, once; torch imports its compiler for this, which eager mode must not."""
    if hasattr(torch.ops.regmax, "triton_attention"):
        return
    torch.library.triton_op("regmax::triton_attention_backward", _backward, mutates_args=())
    operator: Any = torch.library.triton_op("regmax::triton_attention", _forward, mutates_args=())
    operator.register_autograd(_gradients, setup_context=_setup_context)


# The compiler calls the function while it traces: see `in_transform` in frontends/torch/modes.py.
_define._dynamo_marked_constant = True  # type: ignore[attr-defined]
