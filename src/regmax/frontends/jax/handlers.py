"""The XLA FFI handlers of the core, a small library of their own (csrc/jax.cpp): found, checked and registered once.

Without the library, or if jaxlib refuses it, JAX operations compute everything.
"""

import ctypes
import os
import warnings
from functools import cache
from pathlib import Path

import jax

from regmax.kernels import native

WEIGHTS, PRODUCT = "regmax_jax_weights", "regmax_jax_product"
_NAME = "_jax.so"


@cache
def available() -> bool:
    """Whether the handlers are registered: the core then computes on the CPU."""
    path = _find()
    if path is None or not native.available():
        return False
    try:
        # A library made for a newer jaxlib is refused. Before the CPU's client exists, the refusal would break it.
        jax.devices("cpu")
        library = ctypes.CDLL(str(path))
        core = ctypes.CDLL(native.core.__file__)
        functions = (
            core.regmax_argmax,
            core.regmax_jacobian_product,
            core.regmax_abi_version,
            core.regmax_borrow_threads_here,
        )
        addresses = [ctypes.cast(function, ctypes.c_void_p) for function in functions]
        if not library.regmax_jax_bind(*addresses):
            raise RuntimeError("it was built for another version of regmax's core")
        for name in (WEIGHTS, PRODUCT):
            capsule = jax.ffi.pycapsule(getattr(library, name))
            jax.ffi.register_ffi_target(name, capsule, platform="cpu")
    except Exception as error:
        warnings.warn(
            f"regmax computes with JAX operations, because {path} cannot be used: {error}. Build it again.",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


def _find() -> Path | None:
    """The library that REGMAX_JAX_LIBRARY names, or else the one beside the package's modules or the core."""
    if named := os.environ.get("REGMAX_JAX_LIBRARY"):
        return Path(named)
    folders = [Path(__file__).parents[2]]
    if native.available() and native.core.__file__:
        folders.append(Path(native.core.__file__).parent)
    return next((folder / _NAME for folder in folders if (folder / _NAME).exists()), None)
