"""Attention without gradients on short sequences: arguments are checked once per shape, layout and mapping.

At n = 32 the core takes about as long as the checks in Python would. So a call without gradients is reduced to a key:
whatever its checks depend on, and no entry of a tensor. A plan is what the checks found, the arguments of the core
except addresses. Keys, values and queries are read at their strides, and the output gets the layout of the queries, as
that of torch's attention: a model that splits a projection into heads copies nothing.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.compiler import is_compiling

from regmax.arrays import NUMBER
from regmax.frontends.torch.modes import TYPES, is_plain
from regmax.kernels import native
from regmax.kernels.native import attention as core
from regmax.regularizers import KernelRegularizer
from regmax.resolver import MappingLike, MappingModule, Resolved, resolve
from regmax.sparse_attention.fused import describe, slices_of_heads, suits
from regmax.sparse_attention.inputs import Inputs, check_inputs, groups_of

_MOST = 512  # plans: in decoding, each length of the cache needs one
_FLOATS = (torch.float32, torch.float64)


class Plan(NamedTuple):
    """The core's arguments of one kind of call, and the memory that they refer to."""

    call: core.StridedCall
    shape: torch.Size | None  # of the output; None: that of the queries


_plans: dict[Any, Plan | None] = {}


def planned_attention(
    q: Any,
    k: Any,
    v: Any,
    mapping: MappingLike,
    mask: Any,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Tensor | None:
    """The output, or None for a call that needs gradients or that the core does not compute as it is."""
    if is_compiling() or not _reads(q, k, v, mask):
        return None
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return None
    name = _name(mapping)
    if (
        name is None
        or type(scale) not in (float, type(None))
        or type(is_causal) is not bool
        or type(enable_gqa) is not bool
    ):
        return None
    key = (
        name, scale, is_causal, enable_gqa, q.dtype, k.dtype, v.dtype,
        q.shape, q.stride(), k.shape, k.stride(), v.shape, v.stride(),
        mask if mask is None else (mask.dtype, mask.shape, mask.stride()),
    )  # fmt: skip
    try:
        plan = _plans[key]
    except KeyError:
        if len(_plans) >= _MOST:
            _plans.clear()
        inputs = check_inputs(q, k, v, mask, None, is_causal, 0.0, scale, enable_gqa)
        plan = _plans[key] = _plan(q, inputs, mapping)
    if plan is None:
        return None
    out = torch.empty_like(q) if plan.shape is None else q.new_empty(plan.shape)
    core.forward_strided(plan.call, q, k, v, mask, out)
    return out


def _name(mapping: MappingLike) -> Any:
    """What says which mapping it is, at which strengths; None if they are not numbers."""
    if type(mapping) is str:
        return mapping
    if isinstance(mapping, MappingModule):
        mapping = mapping.resolved()
    omega, gamma = (mapping.omega, mapping.gamma) if type(mapping) is Resolved else (mapping, 1.0)
    if not isinstance(omega, KernelRegularizer):
        return None
    theta = omega.theta
    if type(gamma) not in NUMBER or not (theta is None or type(theta) in NUMBER):
        return None
    return type(omega), theta, gamma


def _reads(q: Any, k: Any, v: Any, mask: Any) -> bool:
    """Whether the core may read the tensors where they are, in eager mode on the CPU."""
    for x in (k, v) if mask is None else (k, v, mask):
        if type(x) not in TYPES or x.is_nested or x.layout is not torch.strided or not x.is_cpu:
            return False
    return is_plain(q) and q.is_cpu and native.available() and not torch.is_autocast_enabled("cpu")


def _plan(q: Tensor, inputs: Inputs, mapping: MappingLike) -> Plan | None:
    found = resolve(mapping)
    same = inputs.q is q  # else broadcasting has expanded the queries
    if not same or found.is_softmax or not suits(inputs, found) or q.dtype not in _FLOATS:
        return None
    parts = (q, inputs.k, inputs.v)
    if any(x.ndim > 4 or x.stride(-1) != 1 or x.shape[-1] % 16 for x in parts):
        return None
    mask, slices = inputs.mask, None
    if mask is not None:
        mask = _without_expansion(mask, inputs.k.shape[-2])
        if mask is None or (mask.shape[-2] == 1 and mask.shape[-3:-2] > (1,) and groups_of(inputs) > 1):
            return None
        slices = slices_of_heads(mask.shape[:-2], q.shape[:-2])
    problem, operands = describe(inputs._replace(mask=None), found, recompute=False)
    if operands.thetas is not None or operands.gammas is not None:
        return None
    shape = None if q.shape[-1] == inputs.v.shape[-1] else torch.Size((*q.shape[:-1], inputs.v.shape[-1]))
    out = torch.empty_like(q) if shape is None else q.new_empty(shape)
    strides = [number for x in (*parts, out) for number in _strides(x)]
    call = core.strided_call(problem, operands, strides, slices, 0 if mask is None else mask.shape[-2])
    return Plan(call, shape)


def _strides(x: Tensor) -> tuple[int, int, int]:
    """From batch to batch, from head to head, and from row to row."""
    missing = (0,) * (4 - x.ndim)
    batch, head, row = (*missing, *x.stride()[:-1])
    return batch, head, row


def _without_expansion(mask: Tensor, keys: int) -> Tensor | None:
    """The mask (..., rows, keys) without the dimensions that are expanded; None if its rows are not contiguous then."""
    if mask.ndim < 2 or mask.shape[-1] != keys:
        return None
    for dim in range(mask.ndim - 1):
        if mask.stride(dim) == 0 and mask.shape[dim] > 1:
            mask = mask.narrow(dim, 0, 1)
    return mask if mask.is_contiguous() else None
