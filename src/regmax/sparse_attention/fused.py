"""Attention on the CPU without a dense weight matrix, and its derivative restricted to the support."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from regmax.frontends.torch.modes import is_plain
from regmax.kernels import native
from regmax.kernels.native import attention as core
from regmax.mappings import row_of
from regmax.regularizers import KernelRegularizer
from regmax.resolver import Resolved
from regmax.sparse_attention.dense import dense_attention, repeat_heads
from regmax.sparse_attention.inputs import Inputs
from regmax.sparse_attention.weights import SparseWeights

# Packing the keys costs about as much as the scores of this many queries.
_FEWEST_QUERIES = 8
_NUMBER = int | float


def suits(inputs: Inputs, found: Resolved) -> bool:
    """Whether the native core supports this call: plain CPU tensors, one strength, no gradient of the bias."""
    q, omega = inputs.q, found.omega
    return (
        q.is_cpu
        and q.shape[-2] >= _FEWEST_QUERIES
        and native.available()
        and isinstance(omega, KernelRegularizer)
        and omega.kernel in native.CODES
        and isinstance(found.gamma, _NUMBER)
        and (omega.theta is None or isinstance(omega.theta, _NUMBER))
        and all(is_plain(x) and x.numel() for x in (q, inputs.k, inputs.v))
        and not torch.is_autocast_enabled("cpu")
        and not (inputs.bias is not None and inputs.bias.requires_grad and torch.is_grad_enabled())
    )


def sparse_attention(
    inputs: Inputs, found: Resolved, *, return_weights: bool
) -> tuple[Tensor, SparseWeights | None]:
    """The output, and the weights before dropout if asked for."""
    dtype = inputs.q.dtype
    work = dtype if dtype == torch.float64 else torch.float32
    inputs = _unshare_heads(replace(inputs, **{name: getattr(inputs, name).to(work) for name in "qkv"}))
    problem = _describe(inputs, found, recompute=not return_weights)
    dense = partial(_dense_gradients, inputs, found)
    out, *weights = _SparseAttention.apply(inputs.q, inputs.k, inputs.v, problem, dense, return_weights)  # type: ignore[no-untyped-call]
    if not return_weights:
        return out.to(dtype), None
    starts, columns, values, _ = weights
    return out.to(dtype), SparseWeights(starts, columns, values.to(dtype), inputs.scores_shape)


Gradients = tuple[Tensor | None, ...]


class _SparseAttention(Function):
    """The output, and with `return_weights` the weights, which are not differentiated."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        problem: core.Problem,
        dense_gradients: Callable[..., Gradients],
        return_weights: bool,
    ) -> tuple[Tensor, ...]:
        differentiable = any(ctx.needs_input_grad)
        keep = return_weights or differentiable
        out, weights = core.forward(problem, _padded(q), _padded(k), _padded(v), keep=keep)
        if differentiable and weights is not None:
            ctx.save_for_backward(q, k, v, *weights)
            ctx.problem, ctx.dense_gradients = problem, dense_gradients
        out = out[..., : v.shape[-1]]
        if not return_weights or weights is None:
            return (out,)
        ctx.mark_non_differentiable(*weights)
        return (out, *weights)

    @staticmethod
    def backward(ctx: Any, out_grad: Tensor, *_: Any) -> Gradients:
        q, k, v, *weights = ctx.saved_tensors
        if torch.is_grad_enabled():
            return (*ctx.dense_gradients(q, k, v, out_grad), None, None, None)
        grads = core.backward(
            ctx.problem, _padded(q), _padded(k), _padded(v), core.Weights(*weights), _padded(out_grad)
        )
        trimmed = (grad[..., : x.shape[-1]] for grad, x in zip(grads, (q, k, v), strict=True))
        return (*trimmed, None, None, None)


def _dense_gradients(
    inputs: Inputs, found: Resolved, q: Tensor, k: Tensor, v: Tensor, out_grad: Tensor
) -> Gradients:
    """Gradients that can be differentiated again, recomputed by dense attention."""
    if inputs.dropout_p > 0:
        raise NotImplementedError(
            "`attention(..., dropout_p=...)` is differentiable only once. Got `create_graph=True`: set dropout_p to 0."
        )
    out, _ = dense_attention(replace(inputs, q=q, k=k, v=v), found)
    wanted = [x for x in (q, k, v) if x.requires_grad]
    grads = iter(torch.autograd.grad(out, wanted, out_grad, create_graph=True))
    return tuple(next(grads) if x.requires_grad else None for x in (q, k, v))


def _describe(inputs: Inputs, found: Resolved, *, recompute: bool) -> core.Problem:
    omega = found.omega
    assert isinstance(omega, KernelRegularizer)
    row, theta = row_of(omega), float(omega.theta or 0.0)
    kernel = "sparsemax" if row is not None and theta == row.sparsemax_at else omega.kernel
    bias = None if inputs.bias is None else inputs.bias.detach().to(inputs.q.dtype) / found.gamma
    return core.Problem(
        kernel=kernel,
        theta=theta,
        scale=inputs.scale / found.gamma,
        is_causal=inputs.is_causal,
        mask=_slices(inputs.mask, inputs),
        bias=_slices(bias, inputs),
        dropout_p=float(inputs.dropout_p),
        seed=int(torch.randint(2**63 - 1, ())) if inputs.dropout_p > 0 else 0,
        recompute=recompute,
    )


def _slices(tensor: Tensor | None, inputs: Inputs) -> core.Slices | None:
    """A mask or bias that broadcasts to the scores, expanded only along the keys."""
    if tensor is None:
        return None
    *batch, _, keys = inputs.scores_shape
    full = tensor.reshape((1,) * (len(batch) + 2 - tensor.ndim) + tuple(tensor.shape))
    numbers = torch.arange(full.shape[:-2].numel()).reshape(full.shape[:-2])
    rows = full.expand(*full.shape[:-1], keys).reshape(-1, full.shape[-2], keys)
    return rows.contiguous(), numbers.expand(batch).reshape(-1).contiguous()


def _unshare_heads(inputs: Inputs) -> Inputs:
    """Repeat keys and values that are shared by heads with different padding."""
    mask = inputs.mask
    if inputs.groups == 1 or mask is None or mask.ndim < 3 or mask.shape[-2] != 1 or mask.shape[-3] == 1:
        return inputs
    k, v = repeat_heads(inputs)
    return replace(inputs, k=k, v=v)


def _padded(x: Tensor) -> Tensor:
    """Contiguous, with the head dimension zero-padded to a multiple of 16, which does not change the result."""
    missing = -x.shape[-1] % 16
    return functional.pad(x, (0, missing)) if missing else x.contiguous()
