"""Triton's interpreter in less time, with the same results.

At every call of a function the interpreter replaces the builtins of `triton.language`, though they are replaced already
inside a kernel, and looks types up in a dictionary that it makes anew.
"""

from __future__ import annotations

from functools import cache
from types import FunctionType
from typing import Any

import triton.language as tl
from triton.runtime import interpreter

PATCH, DTYPE = interpreter._patch_lang, interpreter._get_np_dtype
# The modules are found among a function's globals; a kernel's has one of them, the standard library's the other.
BOTH = FunctionType((lambda: None).__code__, {"tl": tl, "core": tl.core})


def patch_once(fn: Any) -> Any:
    """`_patch_lang` for both modules, unless this was done by a caller, who restores them."""
    original = tl.core.is_builtin(tl.load) or tl.core.is_builtin(tl.core.load)
    return PATCH(BOTH) if original else interpreter._LangPatchScope()


@cache
def dtype_by_name(name: str) -> Any:
    """`_get_np_dtype` of a scalar type."""
    return DTYPE(tl.dtype(name))


def numpy_dtype(kind: Any) -> Any:
    """`_get_np_dtype`, whose dictionary is made once."""
    scalar = kind.scalar
    return dtype_by_name(scalar.name) if type(scalar) is tl.dtype else DTYPE(kind)


def install() -> None:
    """Replace both functions."""
    interpreter._patch_lang = patch_once
    interpreter._get_np_dtype = numpy_dtype
