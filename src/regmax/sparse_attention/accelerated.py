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
from regmax.kernels.native.attention import Operands, Problem
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
    """Whether the kernels may read a tensor, now or in the compiled program.

    In deterministic mode some gradients take the dense path, which needs to know how many: no operator does that.
    """
    if is_compiling():
        deterministic = torch.are_deterministic_algorithms_enabled()
        return accelerated_operator.EXISTS and not is_exporting() and not in_transform() and not deterministic
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
    out = AcceleratedAttention.apply(*operands, problem, seed, found, again)  # type: ignore[no-untyped-call]
    return out.to(dtype)


class AcceleratedAttention(Function):
    """Attention by candidates. In deterministic mode, queries with too many of them have dense gradients."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        from regmax.kernels.triton import attention as kernels

        *tensors, problem, seed, found, again = arguments
        operands = Operands(*tensors)
        out, weights = kernels.forward(problem, padded(operands), seed)
        ctx.save_for_backward(*operands, *weights, seed)
        ctx.problem, ctx.found, ctx.again = problem, found, again
        return out[..., : operands.v.shape[-1]]

    @staticmethod
    def backward(ctx: Any, out_grad: Tensor) -> Any:
        from regmax.kernels.triton import attention as kernels

        saved = ctx.saved_tensors
        operands, weights, seed = Operands(*saved[:6]), kernels.Weights(*saved[6:11]), saved[11]
        if torch.is_grad_enabled():
            return (*ctx.again(operands, out_grad, None), None, None, None, None)
        wide = padded(operands)
        direction = functional.pad(out_grad, (0, wide.v.shape[-1] - out_grad.shape[-1])).contiguous()
        deterministic = torch.are_deterministic_algorithms_enabled()
        found = kernels.backward(
            ctx.problem, wide, weights, direction, seed,
            wants_bias=ctx.needs_input_grad[3], deterministic=deterministic,
        )  # fmt: skip
        grads = [
            None if grad is None or given is None else grad[..., : given.shape[-1]]
            for grad, given in zip(found, operands, strict=True)
        ]
        if deterministic and len(refused := weights.refused):
            flat = out_grad.reshape(-1, out_grad.shape[-1])
            for queries in _by_head(refused, out_grad.shape[-2]):
                _add_dense(ctx, operands, grads, queries, flat[queries], seed)
        grads = [
            None if grad is None or given is None else grad.to(given.dtype)
            for grad, given in zip(grads, operands, strict=True)
        ]
        return (*grads, None, None, None, None)


def _by_head(refused: Tensor, n: int) -> list[Tensor]:
    """The queries of each head that has some."""
    sizes = torch.unique_consecutive(refused // n, return_counts=True)[1]
    return list(torch.split(refused, sizes.tolist()))


def dense_rows(
    problem: Problem, operands: Operands, found: Resolved, queries: Tensor, seed: Tensor
) -> Tensor:
    """The outputs of some queries of one head, in differentiable operations; queries are numbered over all heads."""
    from regmax.kernels.triton import attention as kernels

    q, k, v, bias, thetas, gammas = operands
    n, m = q.shape[-2], k.shape[-2]
    head, i = queries[0] // n, queries % n
    shared = head // (q.shape[:-2].numel() // k.shape[:-2].numel())
    k, v = (x.reshape(-1, *x.shape[-2:])[shared].float() for x in (k, v))
    scores = (q.reshape(-1, q.shape[-1])[queries].float() * problem.scale) @ k.mT
    if bias is not None and problem.bias_slices is not None:
        scores = scores + _rows_of(bias[problem.bias_slices[head]], i)
    keep = torch.ones_like(scores, dtype=torch.bool)
    if problem.is_causal:
        keep = torch.arange(m, device=keep.device) <= i[:, None]
    if problem.mask is not None and problem.mask_slices is not None:
        keep = keep & _rows_of(problem.mask[problem.mask_slices[head]], i)
    omega, gamma = found.omega, found.gamma
    assert isinstance(omega, KernelRegularizer)
    if thetas is not None:
        omega = omega.with_theta(_rows_of(thetas[head][:, None], i).float())
    if gammas is not None:
        gamma = _rows_of(gammas[head][:, None], i).float()
    y = Resolved(omega, gamma)(scores, mask=keep)
    if problem.dropout_p > 0:
        y = y * kernels.dropout_of(problem, queries, m, seed)
    return y @ v


def _rows_of(part: Tensor, i: Tensor) -> Tensor:
    """The rows of a mask, bias or strength, of which there may be one for all queries."""
    return part if len(part) == 1 else part[i]


def _add_dense(
    ctx: Any, operands: Operands, grads: list[Any], queries: Tensor, direction: Tensor, seed: Tensor
) -> None:
    """Add the gradients of queries that were computed densely."""
    leaves = Operands(*(None if x is None else x.detach().requires_grad_() for x in operands))  # type: ignore[arg-type]
    with torch.enable_grad():
        out = dense_rows(ctx.problem, leaves, ctx.found, queries, seed)
    wanted = [place for place, grad in enumerate(grads) if grad is not None]
    inputs = [leaves[place] for place in wanted]
    found = torch.autograd.grad(out, inputs, direction.float(), allow_unused=True)  # type: ignore[arg-type]
    for place, extra in zip(wanted, found, strict=True):
        if extra is not None:
            grads[place] = grads[place] + extra


def padded(operands: Operands) -> Operands:
    """Contiguous operands, their head dimensions zero-padded to a power of two from 16 on."""

    def wide(x: Tensor) -> Tensor:
        missing = max(16, 1 << (x.shape[-1] - 1).bit_length()) - x.shape[-1]
        return (functional.pad(x, (0, missing)) if missing else x).contiguous()

    return operands._replace(q=wide(operands.q), k=wide(operands.k), v=wide(operands.v))
