"""Attention on accelerators by Triton kernels, in eager mode and under the compiler. Experimental: see docs/gpu.md."""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.compiler import is_compiling
from torch.nn import functional

from regmax.frontends.torch import accelerators
from regmax.frontends.torch.modes import in_transform, is_exporting, is_plain
from regmax.kernels.native.attention import Operands
from regmax.regularizers import KernelRegularizer
from regmax.resolver import Resolved
from regmax.sparse_attention import accelerated_operator
from regmax.sparse_attention.fused import _dense_gradients, _unshare_heads, describe
from regmax.sparse_attention.inputs import Inputs

_LARGEST = 256  # the largest head dimension
_KEYS = 2**31 // _LARGEST  # offsets inside a head have 32 bits


def suits(inputs: Inputs, found: Resolved) -> bool:
    """Whether the Triton kernels support this call; dense attention computes the others."""
    omega, parts = found.omega, (inputs.q, inputs.k, inputs.v)
    return (
        isinstance(omega, KernelRegularizer)
        and not omega.steps
        and inputs.softcap is None
        and accelerators.has_kernel(inputs.q, omega.kernel)
        and inputs.q.dtype != torch.float64
        and max(inputs.q.shape[-2], inputs.k.shape[-2]) < _KEYS
        and all(_is_readable(x) and x.numel() > 0 and x.shape[-1] <= _LARGEST for x in parts)
    )


def _is_readable(x: Tensor) -> bool:
    """Whether the kernels may read a tensor, now or in the compiled program."""
    if is_compiling():
        return accelerated_operator.EXISTS and not is_exporting() and not in_transform()
    return is_plain(x)


def accelerated_attention(inputs: Inputs, found: Resolved) -> Tensor:
    """The output, as of `dense_attention`."""
    device, dtype = inputs.q.device, inputs.q.dtype
    if torch.is_autocast_enabled(device.type):
        dtype = torch.get_autocast_dtype(device.type)
        inputs = inputs._replace(q=inputs.q.to(dtype), k=inputs.k.to(dtype), v=inputs.v.to(dtype))
    if inputs.mask is not None:
        inputs = _unshare_heads(inputs, inputs.mask)
    problem, operands = describe(inputs, found, recompute=False)
    mask_slices, bias_slices = (
        None if x is None else x.to(device) for x in (problem.mask_slices, problem.bias_slices)
    )
    problem = problem._replace(mask_slices=mask_slices, bias_slices=bias_slices)
    if operands.bias is not None:
        operands = operands._replace(bias=operands.bias.float())
    seed = torch.zeros(1, dtype=torch.int64, device=device)
    if inputs.dropout_p > 0:
        seed = torch.randint(2**31 - 1, (1,), device=device)
    if is_compiling():
        out = accelerated_operator.attend(padded(operands), problem, seed)
        return out[..., : inputs.v.shape[-1]].to(dtype)
    again = partial(_dense_gradients, inputs, found)
    out = AcceleratedAttention.apply(*operands, problem, seed, again)  # type: ignore[no-untyped-call]
    return out.to(dtype)


class AcceleratedAttention(Function):
    """Attention by candidates."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        from regmax.kernels.triton import attention as kernels

        *tensors, problem, seed, again = arguments
        operands = Operands(*tensors)
        out, weights = kernels.forward(problem, padded(operands), seed)
        ctx.save_for_backward(*operands, *weights, seed)
        ctx.problem, ctx.again = problem, again
        return out[..., : operands.v.shape[-1]]

    @staticmethod
    def backward(ctx: Any, out_grad: Tensor) -> Any:
        from regmax.kernels.triton import attention as kernels
        from regmax.kernels.triton.candidates import Weights

        saved = ctx.saved_tensors
        operands, weights, seed = Operands(*saved[:6]), Weights(*saved[6:11]), saved[11]
        if torch.is_grad_enabled():
            return (*ctx.again(operands, out_grad, None), None, None, None)
        wide = padded(operands)
        direction = functional.pad(out_grad, (0, wide.v.shape[-1] - out_grad.shape[-1])).contiguous()
        deterministic = torch.are_deterministic_algorithms_enabled()
        found = kernels.backward(
            ctx.problem, wide, weights, direction, seed,
            wants_bias=ctx.needs_input_grad[3], deterministic=deterministic,
        )  # fmt: skip
        grads = (
            None if grad is None or given is None else grad[..., : given.shape[-1]].to(given.dtype)
            for grad, given in zip(found, operands, strict=True)
        )
        return (*grads, None, None, None)


def padded(operands: Operands) -> Operands:
    """Contiguous operands, their head dimensions zero-padded to a power of two from 16 on."""

    def wide(x: Tensor) -> Tensor:
        missing = max(16, 1 << (x.shape[-1] - 1).bit_length()) - x.shape[-1]
        return (functional.pad(x, (0, missing)) if missing else x).contiguous()

    return operands._replace(q=wide(operands.q), k=wide(operands.k), v=wide(operands.v))
