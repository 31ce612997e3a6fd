"""The native core on CPU tensors: direct calls, and the same calls as custom operators.

The operators (`torch.ops.regmax.*`) are opaque to tracing and have no derivatives: autograd.py defines them.

A strength is a number, or a tensor that broadcasts to x[..., :1]. structure.py describes `bits`, and `extra`, a
second copy of some weights.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, empty_like, get_num_threads

from regmax.frontends.torch import structure
from regmax.kernels import native

# The core's codes of the types whose code is not the item size.
_HALF = {torch.float16: 2, torch.bfloat16: 3}

Strength = Tensor | float


def _code(x: Tensor) -> int:
    return _HALF.get(x.dtype, x.itemsize)


def mask_layout(mask: Tensor, x: Tensor) -> tuple[Tensor, int, int]:
    """The mask as rows of bytes, their number and `repeat`: a row reads mask row (row // repeat) % rows.

    A padding mask (b, 1, 1, d) or a causal mask (q, d) is not expanded; other broadcasts are.
    """
    if mask.shape == x.shape:  # the common case; the general one takes as long as the rows of a small call
        return mask.contiguous(), max(x.numel() // max(x.shape[-1], 1), 1), 1
    shape = (1,) * (x.ndim - mask.ndim) + tuple(mask.shape)
    used = [i for i, size in enumerate(shape[:-1]) if size != 1]
    first, last = (used[0], used[-1]) if used else (0, -1)
    repeat = prod(x.shape[last + 1 : -1]) if used else 1
    if shape[-1] != x.shape[-1] or shape[first : last + 1] != tuple(x.shape[first : last + 1]):
        mask, repeat = mask.expand(x.shape), 1
    mask = mask.contiguous()
    return mask, max(mask.numel() // max(x.shape[-1], 1), 1), max(repeat, 1)


def _optional_arguments(
    x: Tensor, bits: Tensor | None, mask: Tensor | None, thetas: Tensor | None
) -> tuple[tuple[Any, ...], tuple[Tensor | None, ...]]:
    """The arguments of a call from `support` to `thetas`, and the tensors that own their memory."""
    keep, mask_rows, mask_repeat, strengths = None, 1, 1, None
    if mask is not None:
        mask, mask_rows, mask_repeat = mask_layout(mask, x)
        keep = mask.data_ptr()
    if thetas is not None:
        thetas = _per_row(thetas, x)
        strengths = thetas.data_ptr()
    return (*structure.bits_pointers(bits), keep, mask_rows, mask_repeat, strengths), (mask, thetas)


def _more_arguments(
    x: Tensor,
    bits: Tensor | None,
    mask: Tensor | None,
    thetas: Tensor | None = None,
    gammas: Tensor | None = None,
) -> tuple[tuple[Any, ...], tuple[Tensor | None, ...]]:
    """The same up to `kept`."""
    optional, owners = _optional_arguments(x, bits, mask, thetas)
    gammas = None if gammas is None else _per_row(gammas, x)
    kept = None if bits is None or bits.shape[0] < 3 else bits[2].data_ptr()
    return (*optional, None if gammas is None else gammas.data_ptr(), kept), (*owners, gammas)


def _per_row(strength: Tensor, x: Tensor) -> Tensor:
    return strength.expand(*x.shape[:-1], 1).to(torch.float64).contiguous()


def _split(strength: Strength) -> tuple[Tensor | None, float]:
    """A strength as the two arguments of the core: one per row, or one number."""
    if not isinstance(strength, Tensor):
        return None, float(strength)
    return (None, strength.item()) if strength.numel() == 1 else (strength, 1.0)


def call_argmax(
    x: Tensor,
    mask: Tensor | None,
    thetas: Tensor | None,
    theta: float,
    gamma: float,
    kernel: str,
    bits: Tensor | None,
    *,
    read_again: bool = False,
) -> Tensor:
    """Map the rows of x / gamma, x a contiguous CPU tensor, and fill `bits` if it is given.

    Weights that are `read_again` soon stay in the caches.
    """
    y = empty_like(x)
    d = x.shape[-1]
    n = x.numel() // d if d else 0
    code, threads = native.CODES[kernel], get_num_threads()
    if bits is None and mask is None and thetas is None and not read_again:  # the fast path
        native.core.argmax(x.itemsize, code, x.data_ptr(), y.data_ptr(), n, d, theta, gamma, threads)
        return y
    optional, _owners = _optional_arguments(x, bits, mask, thetas)
    if read_again:
        optional = *optional, None, None, None, None, None, None, True
    native.core.argmax(x.itemsize, code, x.data_ptr(), y.data_ptr(), n, d, theta, gamma, threads, *optional)
    return y


def argmax_into(x: Tensor, y: Tensor, bits: Tensor, theta: float, gamma: float, kernel: str) -> None:
    """Map the rows of x / gamma into existing memory; all tensors are contiguous and on the CPU."""
    d = x.shape[-1]
    arguments = x.numel() // d if d else 0, d, theta, gamma, get_num_threads(), *structure.bits_pointers(bits)
    native.core.argmax(x.itemsize, native.CODES[kernel], x.data_ptr(), y.data_ptr(), *arguments)


def call_jacobian_product(
    v: Tensor,
    y: Tensor,
    bits: Tensor | None,
    mask: Tensor | None,
    thetas: Tensor | None,
    theta: float,
    gamma: float,
    kernel: str,
) -> Tensor:
    """J v / gamma for the rows of CPU tensors; `y` and `bits` are contiguous."""
    v = v.contiguous()
    out = empty_like(y)
    d = y.shape[-1]
    n = y.numel() // d if d else 0
    code, threads = native.CODES[kernel], get_num_threads()
    pointers = y.data_ptr(), v.data_ptr(), out.data_ptr()
    if mask is None and thetas is None:
        bits_at = structure.bits_pointers(bits)
        native.core.jacobian_product(y.itemsize, code, *pointers, n, d, theta, gamma, threads, *bits_at)
        return out
    optional, _owners = _optional_arguments(y, bits, mask, thetas)
    native.core.jacobian_product(y.itemsize, code, *pointers, n, d, theta, gamma, threads, *optional)
    return out


def call_argmax_learned(
    x: Tensor,
    mask: Tensor | None,
    theta: Strength,
    gamma: Strength,
    kernel: str,
    bits: Tensor | None,
    extra: Tensor | None,
    *,
    read_again: bool = False,
) -> Tensor:
    """The same with strengths that may be tensors, also in half precision; fill `extra` if it is given."""
    y = empty_like(x)
    d = x.shape[-1]
    n = x.numel() // d if d else 0
    (thetas, one_theta), (gammas, one_gamma) = _split(theta), _split(gamma)
    optional, _owners = _more_arguments(x, bits, mask, thetas, gammas)
    code, threads = native.CODES[kernel], get_num_threads()
    y32, listed = structure.extra_pointers(x, extra)
    more = *optional, None, None, y32, None, read_again, listed
    pointers = x.data_ptr(), y.data_ptr()
    native.core.argmax(_code(x), code, *pointers, n, d, one_theta, one_gamma, threads, *more)
    return y


def call_strength_grads(
    v: Tensor,
    y: Tensor,
    bits: Tensor | None,
    mask: Tensor | None,
    theta: Strength,
    gamma: Strength,
    kernel: str,
    extra: Tensor | None,
    wanted: Sequence[bool] = (True, True),
) -> tuple[Tensor, Tensor, Tensor]:
    """J v / gamma, and the derivatives of <v, y> in each row's theta and gamma, shaped like y[..., :1], in float64.

    A derivative that is not `wanted` is zero.
    """
    grads = y.new_zeros((2, *y.shape[:-1], 1), dtype=torch.float64)
    out = call_product_learned(v, y, bits, mask, theta, gamma, kernel, extra, grads, wanted)
    return out, *grads


def call_product_learned(
    v: Tensor,
    y: Tensor,
    bits: Tensor | None,
    mask: Tensor | None,
    theta: Strength,
    gamma: Strength,
    kernel: str,
    extra: Tensor | None,
    grads: Tensor | None,
    wanted: Sequence[bool] = (True, True),
) -> Tensor:
    """J v / gamma with strengths that may be tensors; fill `grads` with their `wanted` derivatives if it is given.

    In half precision `extra` has the weights, and of `y` only NaN is read.
    """
    v = v.contiguous()
    out = empty_like(y)
    d = y.shape[-1]
    n = y.numel() // d if d else 0
    (thetas, one_theta), (gammas, one_gamma) = _split(theta), _split(gamma)
    optional, _owners = _more_arguments(y, bits, mask, thetas, gammas)
    code, threads = native.CODES[kernel], get_num_threads()
    places = [None if grads is None or not wanted[k] else grads[k].data_ptr() for k in range(2)]
    more = *optional, *places, *structure.extra_pointers(y, extra)
    pointers = y.data_ptr(), v.data_ptr(), out.data_ptr()
    native.core.jacobian_product(_code(y), code, *pointers, n, d, one_theta, one_gamma, threads, *more)
    return out


def call_maximum(
    x: Tensor, mask: Tensor | None, theta: Strength, gamma: Strength, kernel: str, *, learned: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """max_Omega of the rows and their weights; if `learned`, the derivatives of max_Omega in theta and gamma."""
    y = empty_like(x)
    d = x.shape[-1]
    n = x.numel() // d if d else 0
    (thetas, one_theta), (gammas, one_gamma) = _split(theta), _split(gamma)
    optional, _owners = _more_arguments(x, None, mask, thetas, gammas)
    value = x.new_full(x.shape[:-1], -torch.inf, dtype=torch.float64)
    slopes = x.new_zeros((2, *x.shape[:-1], 1), dtype=torch.float64) if learned else None
    by_theta, by_gamma = (None, None) if slopes is None else (slopes[0].data_ptr(), slopes[1].data_ptr())
    numbers = [by_theta, by_gamma, None, value.data_ptr()]
    code, threads = native.CODES[kernel], get_num_threads()
    pointers = x.data_ptr(), y.data_ptr()
    native.core.argmax(x.itemsize, code, *pointers, n, d, one_theta, one_gamma, threads, *optional, *numbers)
    return value.to(x.dtype), y, slopes


@torch.library.custom_op("regmax::argmax", mutates_args=(), device_types="cpu")
def argmax(
    x: Tensor, mask: Tensor | None, thetas: Tensor | None, theta: float, kernel: str
) -> tuple[Tensor, Tensor]:
    """Weights and bits of the rows of `x`."""
    bits = x.new_empty(structure.bits_shape(x, kernel), dtype=torch.int64)
    again = structure.reads_again(x, kernel)
    return call_argmax(x.contiguous(), mask, thetas, theta, 1.0, kernel, bits, read_again=again), bits


@argmax.register_fake
def _(
    x: Tensor, mask: Tensor | None, thetas: Tensor | None, theta: float, kernel: str
) -> tuple[Tensor, Tensor]:
    y = empty_like(x, memory_format=torch.contiguous_format)
    return y, x.new_empty(structure.bits_shape(x, kernel), dtype=torch.int64)


@torch.library.custom_op("regmax::jacobian_product", mutates_args=(), device_types="cpu")
def jacobian_product(
    v: Tensor,
    y: Tensor,
    bits: Tensor | None,
    mask: Tensor | None,
    thetas: Tensor | None,
    theta: float,
    kernel: str,
) -> Tensor:
    """J v, with J the Jacobian of a kernel at its result `y`."""
    bits = None if bits is None else bits.contiguous()
    return call_jacobian_product(v, y.contiguous(), bits, mask, thetas, theta, 1.0, kernel)


@jacobian_product.register_fake
def _(v: Tensor, y: Tensor, *arguments: Any) -> Tensor:
    return empty_like(y, memory_format=torch.contiguous_format)


@torch.library.custom_op("regmax::prox_owl", mutates_args=(), device_types="cpu")
def prox_owl(x: Tensor, weights: Tensor) -> Tensor:
    """The proximal operator of the ordered weighted L1 norm on rows; `weights` in float64."""
    x, weights = x.contiguous(), weights.contiguous()
    z = empty_like(x)
    d = x.shape[-1]
    rows = x.numel() // d if d else 0
    threads = get_num_threads()
    native.core.prox_owl(x.itemsize, x.data_ptr(), z.data_ptr(), rows, d, weights.data_ptr(), threads)
    return z


@prox_owl.register_fake
def _(x: Tensor, weights: Tensor) -> Tensor:
    return empty_like(x, memory_format=torch.contiguous_format)
