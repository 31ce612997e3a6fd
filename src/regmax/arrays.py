"""Array types, the framework of an array, and the few operations that NumPy, PyTorch and JAX name differently.

Neither torch nor jax is imported here: their arrays can exist only if they have been imported already.
"""

import sys
from typing import Any, Protocol, TypeVar

import numpy as np

_NUMPY = (np.ndarray, np.generic)
# The power series of `exponential_ratio` is exact to float64's rounding for |t| < _NEAR.
_NEAR, _TERMS = 0.5, 15

# For isinstance; the compiler of torch 2.9 and before does not trace `int | float` as a value.
NUMBER = (int, float)

A = TypeVar("A")
_Own = TypeVar("_Own", covariant=True)


class AnyArray(Protocol):
    """An array of any framework and dtype, as a structural type: no framework is imported."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each dimension."""

    @property
    def ndim(self) -> int:
        """The number of dimensions."""

    @property
    def dtype(self) -> Any:
        """The type of the entries."""


class Array(AnyArray, Protocol[_Own]):
    """An array of scores or weights; for an `Array[A]` functions return the type A.

    A is the type of -x: that of a `torch.nn.Parameter` is `Tensor`.
    """

    def __neg__(self) -> _Own:
        """-x."""


Strength = float | AnyArray


def framework(x: Any) -> str | None:
    """The name of the array's framework, numpy, torch or jax; None if x is neither an array nor a tensor."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return "torch"
    if isinstance(x, _NUMPY):
        return "numpy"
    jax = sys.modules.get("jax")
    # While jax is being imported, it has no `Array`.
    return "jax" if jax is not None and isinstance(x, getattr(jax, "Array", ())) else None


def check_plain(call: str, x: Any) -> None:
    """Reject a masked array, of which reading its data would ignore the mask, and tensors that are not dense."""
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(
            f"`{call}` needs a plain array. Got a masked array: "
            "pass `a.data`, and to a mapping `mask=~numpy.ma.getmaskarray(a)`."
        )
    if framework(x) != "torch":
        return
    if x.is_nested:
        hint = "pad it with torch.nested.to_padded_tensor, and pass a mask."
        raise TypeError(f"`{call}` needs a dense tensor. Got a nested one: {hint}")
    if str(x.layout) != "torch.strided":
        raise TypeError(f"`{call}` needs a dense tensor. Got layout {x.layout}: call .to_dense() first.")


def namespace(x: Any) -> Any:
    """The module whose functions work on `x`."""
    name = framework(x)
    if name is None:
        raise TypeError(
            f"An array or a tensor is needed. Got {type(x).__name__}: use `numpy.asarray` or `torch.as_tensor`."
        )
    return sys.modules["jax.numpy" if name == "jax" else name]


def is_array(x: Any) -> bool:
    """Whether a parameter is an array or a tensor rather than a number."""
    return framework(x) is not None


def is_module(x: Any) -> bool:
    """Whether this is a torch module."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.nn.Module)


def is_floating(x: Any) -> bool:
    """Whether an array or a tensor has a real floating-point type."""
    if framework(x) == "torch":
        return bool(x.dtype.is_floating_point)
    if framework(x) == "jax":  # whose bfloat16 is not a floating type for NumPy
        return bool(namespace(x).issubdtype(x.dtype, np.floating))
    return bool(np.issubdtype(x.dtype, np.floating))


def as_number(x: Any) -> Any:
    """A NumPy scalar as a Python number; anything else unchanged."""
    return x.item() if isinstance(x, np.generic) else x


def same(a: Any, b: Any) -> bool:
    """Whether two strengths are equal: numbers, or arrays of one framework with one shape and equal entries."""
    a, b = as_number(a), as_number(b)
    if not is_array(a) or not is_array(b):
        return not is_array(a) and not is_array(b) and bool(a == b)
    if framework(a) != framework(b) or a.shape != b.shape:
        return False
    return a is b or (getattr(a, "device", None) == getattr(b, "device", None) and bool((a == b).all()))


def sort_descending(y: Any) -> Any:
    """`y` sorted from large to small along the last dimension."""
    if framework(y) == "torch":
        return y.sort(dim=-1, descending=True).values
    return -namespace(y).sort(-y, axis=-1)


def kept_first(y: Any, mask: Any) -> tuple[Any, Any]:
    """Compact the kept entries of every row to its front, in order, and permute the mask likewise."""
    xp = namespace(y)
    if framework(y) == "torch":
        mask = mask.expand(y.shape)
        order = xp.argsort((~mask).to(xp.uint8), dim=-1, stable=True)
        return xp.take_along_dim(y, order, -1), xp.take_along_dim(mask, order, -1)
    mask = xp.broadcast_to(mask, y.shape)
    order = np.argsort(~mask, axis=-1, kind="stable") if xp is np else xp.argsort(~mask, axis=-1, stable=True)
    return xp.take_along_axis(y, order, -1), xp.take_along_axis(mask, order, -1)


def zero_deleted(y: Any, mask: Any) -> Any:
    """`y` with exact zeros where `mask` is False."""
    return y if mask is None else namespace(y).where(mask, y, 0.0)


def exponential_ratio(t: Any) -> Any:
    """(exp(t) - 1) / t, 1 at t = 0, and as exact as its derivatives for every t."""
    xp = namespace(t)
    near = abs(t) < _NEAR
    small, far = xp.where(near, t, 0.0), xp.where(near, 1.0, t)
    series = xp.ones_like(t)
    for k in range(_TERMS, 1, -1):  # 1 + t/2 (1 + t/3 (1 + ...))
        series = 1 + small * series / k
    return xp.where(near, series, xp.expm1(far) / far)


def ranks(y: Any) -> Any:
    """1, 2, ..., d for the last dimension of `y`."""
    if framework(y) == "torch":
        return namespace(y).arange(1, y.shape[-1] + 1, device=y.device)
    return namespace(y).arange(1, y.shape[-1] + 1)
