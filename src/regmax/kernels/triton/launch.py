"""Launching the row kernels: tile sizes, scratch memory, and the forward function of the kernels' interface."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from regmax.kernels.triton import row_kernels
from regmax.kernels.triton.long_products import long_products
from regmax.kernels.triton.long_rows import long_rows
from regmax.kernels.triton.products import row_products
from regmax.kernels.triton.row_kernels import row_candidates, row_weights

# Rows and slots of a tile, for rows of up to 32 scores and for all others. Larger tiles of scans spill registers:
# `tools/compile_kernels.py` prints what each takes.
TILES = [(16, 32), (4, 128)]
wrap_triton = getattr(torch.library, "wrap_triton", lambda kernel: kernel)
CHUNK = 1024  # scores that a program of `long_rows` reads at a time
# Contraction to fused multiply-adds would make results depend on the compiler's version.
OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}


def run(kernel: Any, x: Tensor, **options: int) -> Callable[..., Any]:
    """A function that launches a kernel on tensors like `x`: with the grid, the arguments and the constants.

    A compiler traces with tensors of other types, must see the kernel, and knows no other options than the warps.
    """
    if type(x) in (Tensor, torch.nn.Parameter):
        every = {**OPTIONS, **options}
        return lambda grid, *arguments, **constants: kernel[grid](*arguments, **constants, **every)
    traced, warps = wrap_triton(kernel), options.get("num_warps", OPTIONS["num_warps"])
    return lambda grid, *arguments, **constants: traced[grid](*arguments, **constants, num_warps=warps)


def tile(d: int, work: torch.dtype = torch.float32) -> tuple[int, int]:
    """Rows and slots of the tiles for rows of length `d`; those of scans in float64 have half as many rows."""
    rows, slots = TILES[0] if d <= TILES[0][1] else TILES[-1]
    return (rows // 2 if work == torch.float64 else rows), slots


def kind(kernel: str, theta: float | Tensor | None) -> int:
    """The number of a kernel; at 1.5, sqpnormmax and entmax have kernels without powers."""
    special = getattr(row_kernels, f"{kernel}_15".upper(), None)
    if special is not None and isinstance(theta, int | float) and theta == 1.5:
        return special.value
    return getattr(row_kernels, kernel.upper()).value


class Arguments(NamedTuple):
    """The arguments that all row kernels share, and their strides."""

    keep: Tensor
    theta: Tensor
    gamma: Tensor
    strides: dict[str, int]
    constants: dict[str, Any]


def arguments(x: Tensor, keep: Tensor | None, theta: Any, gamma: Any) -> Arguments:
    """Masks and strengths as tensors with strides; nothing is expanded in memory."""
    n, d = x.shape
    work = torch.float64 if x.dtype == torch.float64 else torch.float32
    mask = x if keep is None else narrow(keep.expand(n, d))
    theta, gamma = (_strength(each, x, work) for each in (1.0 if theta is None else theta, gamma))
    strides = {
        "keep_row": mask.stride(0),
        "keep_step": mask.stride(1),
        "theta_row": theta.stride(0),
        "gamma_row": gamma.stride(0),
    }
    return Arguments(
        mask, theta, gamma, strides, {"HAS_KEEP": keep is not None, "EPS": torch.finfo(work).eps}
    )


def narrow(x: Tensor) -> Tensor:
    """Rows whose offsets inside a row fit into 32 bits; those of whole rows have 64 bits."""
    return x if x.shape[1] * x.stride(1) < 2**31 else x.contiguous()


def _strength(value: Any, x: Tensor, work: torch.dtype) -> Tensor:
    """One number per row, by a stride of 0 if all are equal. A kernel's scalar arguments are only float32."""
    if not isinstance(value, Tensor):
        value = torch.full((1,), float(value), dtype=work, device=x.device)
    return value.to(device=x.device, dtype=work).reshape(-1).expand(x.shape[0])


def argmax(
    kernel: str, x: Tensor, keep: Tensor | None = None, theta: Any = None, *, gamma: Any = 1.0
) -> Tensor:
    """Return the mapping `kernel` of every row of `x / gamma` (n, d), with the dtype of `x`.

    Arguments as in `tensors.argmax`; also float16 and bfloat16. Nothing is read by the host.
    """
    return weights(kernel, x, keep, theta, gamma).to(x.dtype)


def weights(kernel: str, x: Tensor, keep: Tensor | None, theta: Any, gamma: Any) -> Tensor:
    """The same in the arithmetic's type: float32 for halves."""
    n, d = x.shape
    work = torch.float64 if x.dtype == torch.float64 else torch.float32
    y = x.new_empty((n, d), dtype=work)
    if not y.numel():
        return y
    x = narrow(x)
    rows, slots = tile(d, work)
    number = kind(kernel, theta)
    shared = arguments(x, keep, theta, gamma)
    value, ordered = x.new_empty((2, n, slots), dtype=work)
    column, rank = x.new_empty((2, n, slots), dtype=torch.int32)
    count, kept = x.new_empty((2, n), dtype=torch.int32)
    strides = {"x_row": x.stride(0), "x_step": x.stride(1), **shared.strides}
    block = tile(d)[0]
    run(row_candidates, x)(
        (triton.cdiv(n, block),), x, shared.keep, shared.theta, shared.gamma, y,
        value, column, rank, count, kept, n, d, **strides, R=block, B=slots, C=slots, KIND=number, **shared.constants,
    )  # fmt: skip
    run(row_weights, x)(
        (triton.cdiv(n, rows),), value, ordered, column, rank, count, kept,
        shared.theta, y, n, d, shared.strides["theta_row"],
        R=rows, C=slots, KIND=number, SCATTER=True, EPS=shared.constants["EPS"],
    )  # fmt: skip
    if d > slots:
        clusters = kernel == "oscarmax"
        place = x.new_empty((n, d), dtype=torch.int32) if clusters else count
        sums = x.new_empty((n, d), dtype=torch.float64) if clusters else y
        run(long_rows, x)(
            (n,), x, shared.keep, shared.theta, shared.gamma, y, place, sums, count, d,
            **strides, B=CHUNK, C=slots, KIND=number, **shared.constants,
        )  # fmt: skip
    return y


def jacobian_product(
    kernel: str, y: Tensor, v: Tensor, keep: Tensor | None = None, theta: Any = None, *, gamma: Any = 1.0
) -> Tensor:
    """Return J v / gamma for every row, with the dtype of `v`. Arguments as in `argmax`; `y` are the weights."""
    product, _, _ = _products(kernel, y, v, keep, theta, gamma, strengths=False)
    return product.to(v.dtype)


def strength_grads(
    kernel: str, y: Tensor, v: Tensor, keep: Tensor | None = None, theta: Any = None, *, gamma: Any = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Return J v / gamma, and the derivatives of <v, y> in each row's theta and gamma, (n, 1)."""
    product, theta_grad, gamma_grad = _products(kernel, y, v, keep, theta, gamma, strengths=True)
    return product.to(v.dtype), theta_grad, gamma_grad


def _products(
    kernel: str, y: Tensor, v: Tensor, keep: Tensor | None, theta: Any, gamma: Any, *, strengths: bool
) -> tuple[Tensor, Tensor, Tensor]:
    n, d = y.shape
    work = torch.float64 if y.dtype == torch.float64 else torch.float32
    rows, slots = tile(d, work)
    out = y.new_zeros((n, d), dtype=work)
    grads = y.new_zeros((2, n, 1), dtype=work)
    if not out.numel():
        return out, *grads
    y, v = narrow(y), narrow(v)
    shared = arguments(y, keep, theta, gamma)
    strides = {"y_row": y.stride(0), "y_step": y.stride(1), "v_row": v.stride(0), "v_step": v.stride(1)}
    inputs = y, v, shared.keep, shared.theta, shared.gamma, out
    number, grid = kind(kernel, theta), (triton.cdiv(n, rows),)
    if d <= slots:
        run(row_products, y)(
            grid, *inputs, *grads, n, d, **strides, **shared.strides,
            R=rows, C=slots, KIND=number, STRENGTHS=strengths, **shared.constants,
        )  # fmt: skip
    else:
        scratch: Any = y.new_empty((2, n, d), dtype=work) if kernel == "oscarmax" else (out, out)
        run(long_products, y)(
            grid, *inputs, *scratch, *grads, n, d, **strides, **shared.strides,
            R=rows, B=slots, KIND=number, HAS_KEEP=shared.constants["HAS_KEEP"],
        )  # fmt: skip
    return out, *grads
