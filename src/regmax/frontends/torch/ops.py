"""The native core on CPU tensors: direct calls, and the same calls as custom operators.

The operators (`torch.ops.regmax.*`) are opaque to tracing and differentiate nothing themselves: autograd.py does.
Row structure comes along as bits (see csrc/regmax.h): `support`, and `joined` for kernels whose groups are runs.
"""

from math import prod
from typing import Any

import torch
from torch import Tensor

from regmax.kernels import native

Structure = tuple[Tensor, Tensor, Tensor]  # y, support, joined


def words(x: Tensor) -> list[int]:
    """The shape of one bit per entry of `x`, packed along the last dimension into 64-bit words."""
    return [*x.shape[:-1], (x.shape[-1] + 63) // 64]


def mask_layout(mask: Tensor | None, x: Tensor) -> tuple[Tensor | None, int, int]:
    """The mask as rows of bytes, with the rule by which the core finds a row's: (row // repeat) % rows.

    A padding mask (b, 1, 1, d) or a causal mask (q, d) is used as it is; other broadcasts are expanded.
    """
    if mask is None:
        return None, 1, 1
    shape = (1,) * (x.ndim - mask.ndim) + tuple(mask.shape)
    used = [i for i, size in enumerate(shape[:-1]) if size != 1]
    first, last = (used[0], used[-1]) if used else (0, -1)
    repeat = prod(x.shape[last + 1 : -1]) if used else 1
    if shape[-1] != x.shape[-1] or shape[first : last + 1] != tuple(x.shape[first : last + 1]):
        mask, repeat = mask.expand(x.shape), 1
    mask = mask.contiguous()
    return mask, max(mask.numel() // max(x.shape[-1], 1), 1), max(repeat, 1)


def _rows(x: Tensor) -> tuple[int, int]:
    d = x.shape[-1]
    return (x.numel() // d if d else 0), d


def _thetas(thetas: Tensor | None, x: Tensor) -> Tensor | None:
    """One float64 strength per row."""
    return None if thetas is None else thetas.expand(*x.shape[:-1], 1).to(torch.float64).contiguous()


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def call_argmax(x: Tensor, mask: Tensor | None, thetas: Tensor | None, theta: float, kernel: str, bits: bool) -> Structure:
    """Map the rows of a contiguous CPU tensor; `bits` asks for the row structure that a backward wants."""
    y = torch.empty_like(x)
    chained = kernel in native.CHAINED
    support = x.new_empty(words(x) if bits else [0], dtype=torch.int64)
    joined = x.new_empty(words(x) if bits and chained else [0], dtype=torch.int64)
    keep, mask_rows, mask_repeat = mask_layout(mask, x)
    strengths = _thetas(thetas, x)
    n, d = _rows(x)
    native.check(
        native.ARGMAX[x.element_size()](
            native.CODES[kernel],
            x.data_ptr(),
            y.data_ptr(),
            support.data_ptr() if bits else None,
            joined.data_ptr() if bits and chained else None,
            n,
            d,
            _pointer(keep),
            mask_rows,
            mask_repeat,
            theta,
            _pointer(strengths),
            torch.get_num_threads(),
        )
    )
    return y, support, joined


def call_jacobian_product(
    v: Tensor,
    y: Tensor,
    support: Tensor,
    joined: Tensor,
    mask: Tensor | None,
    thetas: Tensor | None,
    theta: float,
    kernel: str,
) -> Tensor:
    """J v for the rows of CPU tensors."""
    v, y, support, joined = v.contiguous(), y.contiguous(), support.contiguous(), joined.contiguous()
    out = torch.empty_like(y)
    keep, mask_rows, mask_repeat = mask_layout(mask, y)
    strengths = _thetas(thetas, y)
    n, d = _rows(y)
    native.check(
        native.JACOBIAN_PRODUCT[y.element_size()](
            native.CODES[kernel],
            y.data_ptr(),
            support.data_ptr() if support.numel() else None,
            joined.data_ptr() if joined.numel() else None,
            v.data_ptr(),
            out.data_ptr(),
            n,
            d,
            _pointer(keep),
            mask_rows,
            mask_repeat,
            theta,
            _pointer(strengths),
            torch.get_num_threads(),
        )
    )
    return out


@torch.library.custom_op("regmax::argmax", mutates_args=(), device_types="cpu")
def argmax(x: Tensor, mask: Tensor | None, thetas: Tensor | None, theta: float, kernel: str) -> Structure:
    """Weights, support bits and joined bits of the rows of `x`."""
    return call_argmax(x.contiguous(), mask, thetas, theta, kernel, True)


@argmax.register_fake
def _(x: Tensor, mask: Tensor | None, thetas: Tensor | None, theta: float, kernel: str) -> Structure:
    joined = words(x) if kernel in native.CHAINED else [0]
    return (
        torch.empty_like(x, memory_format=torch.contiguous_format),
        x.new_empty(words(x), dtype=torch.int64),
        x.new_empty(joined, dtype=torch.int64),
    )


@torch.library.custom_op("regmax::jacobian_product", mutates_args=(), device_types="cpu")
def jacobian_product(
    v: Tensor,
    y: Tensor,
    support: Tensor,
    joined: Tensor,
    mask: Tensor | None,
    thetas: Tensor | None,
    theta: float,
    kernel: str,
) -> Tensor:
    """J v, J being the Jacobian of a kernel at its result `y`."""
    return call_jacobian_product(v, y, support, joined, mask, thetas, theta, kernel)


@jacobian_product.register_fake
def _(v: Tensor, y: Tensor, *arguments: Any) -> Tensor:
    return torch.empty_like(y, memory_format=torch.contiguous_format)


@torch.library.custom_op("regmax::prox_owl", mutates_args=(), device_types="cpu")
def prox_owl(x: Tensor, weights: Tensor) -> Tensor:
    """The proximal operator of the ordered weighted L1 norm on rows; `weights` in float64."""
    x, weights = x.contiguous(), weights.contiguous()
    z = torch.empty_like(x)
    native.check(
        native.PROX_OWL[x.element_size()](x.data_ptr(), z.data_ptr(), *_rows(x), weights.data_ptr(), torch.get_num_threads())
    )
    return z


@prox_owl.register_fake
def _(x: Tensor, weights: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)
