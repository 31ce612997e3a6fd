"""Argument checks of `attention`: shapes broadcast, types agree."""

from collections.abc import Mapping
from math import sqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regmax.arrays import check_plain
from regmax.frontends.checks import broadcasts
from regmax.kernels.native.attention import Screen

CALL = "attention(q, k, v)"


class Inputs(NamedTuple):
    """Queries, keys and values with equal batch dimensions (except for grouped heads), and the options of the call."""

    q: Tensor  # (..., heads, queries, e)
    k: Tensor  # (..., heads or fewer, keys, e)
    v: Tensor  # (..., heads or fewer, keys, e_v)
    mask: Tensor | None  # True = keep, broadcasts to the scores
    bias: Tensor | None  # added to the scores, broadcasts to them
    is_causal: bool
    dropout_p: float
    scale: float
    softcap: float | None = None
    screen: Screen | None = None  # a copy of k in 8 bits


# Functions, because the compiler of torch 2.9 does not trace properties of a named tuple.
def groups_of(inputs: Inputs) -> int:
    """How many query heads share a head of keys and values."""
    if inputs.q.ndim < 3 or not inputs.k.shape[-3]:
        return 1
    return inputs.q.shape[-3] // inputs.k.shape[-3]


def scores_shape(inputs: Inputs) -> tuple[int, ...]:
    """The shape of the scores, (..., heads, queries, keys)."""
    return (*inputs.q.shape[:-1], inputs.k.shape[-2])


def check_inputs(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    is_causal: bool,
    dropout_p: float,
    scale: float | None,
    enable_gqa: bool,
) -> Inputs:
    """Raise if the arguments are inconsistent; broadcast the batch dimensions."""
    _check_tensors(q, k, v)
    if not 0.0 <= dropout_p <= 1.0:
        raise ValueError(f"`{CALL[:-1]}, dropout_p=...)` must be from 0 to 1. Got {dropout_p}.")
    q, k, v = _broadcast(q, k, v, enable_gqa)
    factor = 1 / sqrt(max(q.shape[-1], 1)) if scale is None else float(scale)
    inputs = Inputs(q, k, v, mask, bias, is_causal, dropout_p, factor)
    _check_addition("mask", mask, inputs)
    _check_addition("bias", bias, inputs)
    return inputs


def check_options(options: Mapping[str, object]) -> None:
    """Raise for unknown arguments; the error for torch's `attn_mask` names the replacements."""
    name = next(iter(options))
    if name == "attn_mask":
        raise TypeError(
            f"`{CALL}` takes no `attn_mask`: pass a boolean mask as `mask`, True = keep, and one that is added to "
            "the scores as `bias`."
        )
    raise TypeError(f"`{CALL}` takes no argument {name!r}.")


def _check_tensors(q: Any, k: Any, v: Any) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            raise TypeError(f"`{CALL}` needs torch tensors. Got {type(x).__name__} for {name}.")
        check_plain(CALL, x)
        if not x.dtype.is_floating_point:
            raise TypeError(f"`{CALL}` needs floating-point tensors. Got {x.dtype} for {name}.")
        if x.ndim < 2:
            raise ValueError(
                f"`{CALL}` needs at least a length and a head dimension. Got {tuple(x.shape)} for {name}."
            )
    if not q.dtype == k.dtype == v.dtype or not q.device == k.device == v.device:
        kinds = ", ".join(f"{x.dtype} on {x.device}" for x in (q, k, v))
        raise TypeError(f"`{CALL}` needs one type and one device. Got {kinds}.")
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"`{CALL}`: q and k need one head dimension. Got {q.shape[-1]} and {k.shape[-1]}.")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"`{CALL}`: k and v need one length. Got {k.shape[-2]} and {v.shape[-2]}.")


def _broadcast(q: Tensor, k: Tensor, v: Tensor, enable_gqa: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Expand q, k and v to equal batch dimensions; with `enable_gqa` k and v keep their number of heads."""
    heads = 3 if enable_gqa else 2  # the dimensions, from the end, that are not broadcast
    if enable_gqa:
        _check_heads(q, k, v)
    if q.shape[:-heads] == k.shape[:-heads] == v.shape[:-heads]:
        return q, k, v
    try:
        batch = torch.broadcast_shapes(*(x.shape[:-heads] for x in (q, k, v)))  # type: ignore[no-untyped-call]
    except RuntimeError:
        shapes = ", ".join(str(tuple(x.shape)) for x in (q, k, v))
        raise ValueError(f"`{CALL}` needs batch dimensions that broadcast. Got {shapes}.") from None
    q, k, v = (x.expand(*batch, *x.shape[-heads:]) for x in (q, k, v))
    return q, k, v


def _check_heads(q: Tensor, k: Tensor, v: Tensor) -> None:
    if min(q.ndim, k.ndim, v.ndim) < 3:
        raise ValueError(f"`{CALL[:-1]}, enable_gqa=True)` needs heads, (..., heads, length, dimension).")
    q_heads, k_heads = q.shape[-3], k.shape[-3]
    if v.shape[-3] != k_heads or (q_heads % k_heads if k_heads else q_heads):
        raise ValueError(
            f"`{CALL[:-1]}, enable_gqa=True)` needs as many heads in v as in k, and a multiple of them in q. "
            f"Got {q_heads}, {k_heads} and {v.shape[-3]} heads."
        )


def _check_addition(name: str, tensor: Any, inputs: Inputs) -> None:
    """Raise unless a mask is boolean, a bias floating-point, and either broadcasts to the scores."""
    if tensor is None:
        return
    if not isinstance(tensor, Tensor):
        raise TypeError(f"`{CALL[:-1]}, {name}=...)` must be a tensor. Got {type(tensor).__name__}.")
    if name == "mask" and tensor.dtype != torch.bool:
        raise TypeError(
            f"`{CALL[:-1]}, mask=...)` must be boolean, True = keep. Got {tensor.dtype}: pass additive masks as `bias`."
        )
    if name == "bias" and not tensor.dtype.is_floating_point:
        raise TypeError(f"`{CALL[:-1]}, bias=...)` must be floating-point. Got {tensor.dtype}.")
    if not broadcasts(tensor.shape, scores_shape(inputs)):
        raise ValueError(
            f"`{CALL[:-1]}, {name}=...)` must broadcast to the scores' shape {scores_shape(inputs)}. "
            f"Got {tuple(tensor.shape)}."
        )
