"""The kernel interface on rows: takes NumPy arrays or contiguous CPU tensors and returns the same type.

The core has no softmax: `reference` computes it for arrays, `tensors` for tensors.
"""

import os
import sys
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from regmax.arrays import framework, is_array
from regmax.kernels import KERNELS, reference
from regmax.kernels.native.library import core

CODES = {name: code for code, (name, kernel) in enumerate(KERNELS.items()) if kernel.core}
# Kernels of the core alone: what computes a kernel whose result sparsemax maps next. Numbers without weight there may
# be 0, and the Jacobian product is right for directions that are 0 where the weights are.
LEADING = {"prox_oscar": "prox_oscar_leading"}
CODES["prox_oscar_leading"] = 16
# The kernels whose groups are segments: their backward pass needs the bits `joined`.
CHAINED = frozenset(name for name, kernel in KERNELS.items() if kernel.groups == "segments")

_FLOATS = np.dtype(np.float32), np.dtype(np.float64)
_HALF = np.dtype(np.float16)  # of an array: weights only, for a Jacobian product needs them in float32
_TENSOR_FLOATS = "torch.float32", "torch.float64"

Rows = TypeVar("Rows")  # an array or a tensor


def argmax(kernel: str, x: Rows, keep: Any = None, theta: Any = None, *, gamma: Any = 1.0) -> Rows:
    """Return the mapping `kernel` of every row of `x / gamma`, with the type and dtype of `x`.

    Args:
        kernel: one of `regmax.kernels.KERNELS`.
        x: scores (n, d), float32 or float64; arrays also float16.
        keep: boolean, broadcasts to `x`; None keeps everything.
        theta: the kernel's strength, `lam` or `p`: a number, or one per row.
        gamma: positive: a number, or one per row.

    >>> argmax("fusedmax", np.array([[1.0, 0.9, 0.6]]), theta=0.1).round(3)
    array([[0.4, 0.4, 0.2]])
    """
    if kernel not in CODES:
        return _without_core(x).argmax(kernel, x, keep, theta, gamma=gamma)
    call = f"argmax({kernel!r}, x)"
    scores = _checked(call, x, (*_FLOATS, _HALF))
    y = _empty_like(scores)
    arguments, _owners = _arguments(call, scores, keep, theta, gamma)
    core.argmax(scores.itemsize, CODES[kernel], _address(scores), _address(y), *arguments)
    return y


def jacobian_product(
    kernel: str, y: Rows, v: Rows, keep: Any = None, theta: Any = None, *, gamma: Any = 1.0
) -> Rows:
    """Return J v / gamma for every row, with J computed from the mapping's result `y`. Arguments as in `argmax`.

    >>> jacobian_product("fusedmax", np.array([[0.4, 0.4, 0.2]]), np.array([[3.0, 1.0, 5.0]]), theta=0.1)
    array([[-1., -1.,  2.]])
    """
    if kernel not in CODES:
        return _without_core(y).jacobian_product(kernel, y, v, keep, theta, gamma=gamma)
    call = f"jacobian_product({kernel!r}, y, v)"
    weights, direction = _checked(call, y), _checked(call, v)
    if weights.shape != direction.shape or weights.dtype != direction.dtype:
        raise ValueError(
            f"`{call}` needs y and v of one shape and type. Got {tuple(weights.shape)}, {weights.dtype} and "
            f"{tuple(direction.shape)}, {direction.dtype}."
        )
    out = _empty_like(weights)
    arguments, _owners = _arguments(call, weights, keep, theta, gamma)
    addresses = _address(weights), _address(direction), _address(out)
    core.jacobian_product(weights.itemsize, CODES[kernel], *addresses, *arguments)
    return out


def prox_owl(x: Rows, weights: NDArray[np.float64]) -> Rows:
    """The proximal operator of the ordered weighted L1 norm, row by row; `weights` holds d numbers."""
    scores = _checked("prox_owl(x, weights)", x)
    z, weights = _empty_like(scores), np.ascontiguousarray(weights, np.float64)
    n, d = scores.shape
    if weights.shape != (d,):
        raise ValueError(f"`prox_owl(x, weights)` needs {d} weights, one per position. Got {weights.shape}.")
    core.prox_owl(scores.itemsize, _address(scores), _address(z), n, d, _address(weights), _threads(scores))
    return z


def _without_core(x: Any) -> Any:
    """The implementation for kernels that the core does not have."""
    if framework(x) != "torch":
        return reference
    from regmax.kernels import tensors

    return tensors


def _checked(call: str, x: Any, floats: tuple[np.dtype[Any], ...] = _FLOATS) -> Any:
    """Contiguous rows of a type that the core supports."""
    if core is None:
        raise RuntimeError(f"`{call}` needs the native core. Got an installation without it.")
    if isinstance(x, np.ndarray) and x.ndim == 2 and x.dtype in floats:
        return np.ascontiguousarray(x)
    if framework(x) == "torch" and x.ndim == 2 and str(x.dtype) in _TENSOR_FLOATS and x.is_cpu:
        return x.detach().contiguous()
    got = f"{x.dtype} of shape {tuple(x.shape)}" if is_array(x) else type(x).__name__
    raise TypeError(f"`{call}` needs rows (n, d) of the CPU in float32 or float64. Got {got}.")


def _empty_like(x: Any) -> Any:
    return np.empty_like(x) if isinstance(x, np.ndarray) else x.new_empty(x.shape)


def _arguments(
    call: str, x: Any, keep: Any, theta: Any, gamma: Any
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The last arguments of a call, and the arrays that own their memory."""
    n, d = x.shape
    keep = None if keep is None else _mask(call, keep, x)
    theta, thetas = _per_row(call, "theta", np.nan if theta is None else theta, n)
    gamma, gammas = _per_row(call, "gamma", gamma, n)
    bits = None, None
    mask = _address(keep), n if keep is not None and n else 1, 1
    last = n, d, theta, gamma, _threads(x), *bits, *mask, _address(thetas), _address(gammas)
    return last, (keep, thetas, gammas)


def _mask(call: str, keep: Any, x: Any) -> Any:
    """The mask, expanded to every row."""
    if str(keep.dtype).removeprefix("torch.") != "bool":
        raise TypeError(f"`{call}`: `keep` must be boolean, True = keep. Got {keep.dtype}.")
    if isinstance(keep, np.ndarray):
        return np.ascontiguousarray(np.broadcast_to(keep, x.shape))
    return keep.expand(x.shape).contiguous()


def _per_row(call: str, name: str, value: Any, n: int) -> tuple[float, NDArray[np.float64] | None]:
    """A number for all rows, or one per row."""
    if isinstance(value, float | int) or not value.ndim:
        return float(value), None
    value = value if isinstance(value, np.ndarray) else value.detach()
    rows = np.ascontiguousarray(np.asarray(value), np.float64).reshape(-1)
    if rows.shape != (n,):
        raise ValueError(f"`{call}`: {name} must be a number, or one per row, {n}. Got {rows.size}.")
    return 1.0, rows


def _address(array: Any) -> int | None:
    if array is None:
        return None
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data_ptr()


def _threads(x: Any) -> int:
    """For tensors torch's number of threads; for arrays the number of cores available to this process."""
    if not isinstance(x, np.ndarray):
        return sys.modules["torch"].get_num_threads()
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
