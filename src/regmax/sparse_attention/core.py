"""The native core's attention (csrc/regmax.h) on contiguous CPU tensors."""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regmax.kernels import native

_P, _I, _N, _X = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_double


class _Call(ctypes.Structure):
    """struct regmax_attention."""

    _fields_ = (
        ("kernel", _I),
        ("is_causal", _I),
        ("theta", _X),
        ("scale", _X),
        ("heads", _N),
        ("groups", _N),
        ("queries", _N),
        ("keys", _N),
        ("e", _N),
        ("e_v", _N),
        ("q", _P),
        ("k", _P),
        ("v", _P),
        ("mask", _P),
        ("mask_slices", _P),
        ("mask_rows", _N),
        ("bias", _P),
        ("bias_slices", _P),
        ("bias_rows", _N),
        ("dropout_p", _X),
        ("seed", ctypes.c_uint64),
        ("threads", _I),
        ("recompute", _I),
    )


class Slices(NamedTuple):
    """A mask or a bias that is not expanded over the heads: head h reads slice `of_head[h]`."""

    tensor: Tensor  # (slices, rows, keys), rows being 1 or the number of queries
    of_head: Tensor  # (heads,), int64


class Problem(NamedTuple):
    """What the core needs to know besides q, k and v."""

    kernel: str
    theta: float
    scale: float
    is_causal: bool
    mask: Slices | None
    bias: Slices | None
    dropout_p: float
    seed: int
    recompute: bool  # leave the weights of dense blocks out, and compute them again for the backward pass


class Weights(NamedTuple):
    """The nonzero weights as compressed rows; `joined` is empty but for fusedmax."""

    starts: Tensor
    columns: Tensor
    values: Tensor
    joined: Tensor


@cache
def _passes() -> tuple[dict[int, Callable[..., int]], dict[int, Callable[..., int]]]:
    """Forward and backward, by item size."""
    return native.by_itemsize("attention_forward", [_P] * 3), native.by_itemsize(
        "attention_backward", [_P] * 9
    )


@cache
def _handover() -> tuple[Callable[..., int], Callable[..., None]]:
    """How many weights a forward pass left, and taking them over."""
    return native.function("attention_size", [_P], _N), native.function("attention_take", [_P] * 5, None)


def _describe(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> _Call:
    heads, kv_heads = q.shape[:-2].numel(), k.shape[:-2].numel()
    return _Call(
        kernel=native.CODES[problem.kernel],
        is_causal=problem.is_causal,
        theta=problem.theta,
        scale=problem.scale,
        heads=heads,
        groups=heads // max(kv_heads, 1) or 1,
        queries=q.shape[-2],
        keys=k.shape[-2],
        e=q.shape[-1],
        e_v=v.shape[-1],
        q=q.data_ptr(),
        k=k.data_ptr(),
        v=v.data_ptr(),
        **_describe_slices("mask", problem.mask),
        **_describe_slices("bias", problem.bias),
        dropout_p=problem.dropout_p,
        seed=problem.seed,
        threads=torch.get_num_threads(),
        recompute=problem.recompute,
    )


def _describe_slices(name: str, slices: Slices | None) -> dict[str, Any]:
    if slices is None:
        return {}
    return {
        name: slices.tensor.data_ptr(),
        f"{name}_slices": slices.of_head.data_ptr(),
        f"{name}_rows": slices.tensor.shape[1],
    }


def forward(
    problem: Problem, q: Tensor, k: Tensor, v: Tensor, *, keep: bool
) -> tuple[Tensor, Weights | None]:
    """The output, and the weights if they are to be kept."""
    out = q.new_empty(*q.shape[:-1], v.shape[-1])
    call, handle = _describe(problem, q, k, v), ctypes.c_void_p()
    run = _passes()[0][q.element_size()]
    native.check(run(ctypes.byref(call), out.data_ptr(), ctypes.byref(handle) if keep else None))
    return out, _take(handle, call, q, problem.kernel == "fusedmax") if keep else None


def _take(handle: ctypes.c_void_p, call: _Call, q: Tensor, chained: bool) -> Weights:
    size_of, take = _handover()
    size = size_of(handle)
    weights = Weights(
        torch.empty(call.heads * call.queries + 1, dtype=torch.int64),
        torch.empty(size, dtype=torch.int32),
        torch.empty(size, dtype=q.dtype),
        torch.empty(size if chained else 0, dtype=torch.uint8),
    )
    take(handle, *(part.data_ptr() for part in weights[:3]), weights.joined.data_ptr() if chained else None)
    return weights


def backward(
    problem: Problem, q: Tensor, k: Tensor, v: Tensor, weights: Weights, out_grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v."""
    call = _describe(problem, q, k, v)
    grads = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    native.check(
        _passes()[1][q.element_size()](
            ctypes.byref(call),
            *(part.data_ptr() for part in weights[:3]),
            weights.joined.data_ptr() if problem.kernel == "fusedmax" else None,
            out_grad.data_ptr(),
            *(grad.data_ptr() for grad in grads),
        )
    )
    return grads
