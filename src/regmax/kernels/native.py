"""The C++ core (csrc/regmax.h), called with raw pointers.

`ARGMAX`, `JACOBIAN_PRODUCT` and `PROX_OWL` hold the C functions by item size; front ends that care for every
microsecond call them directly. `argmax`, `jacobian_product` and `prox_owl` are the waist's contract on NumPy arrays.
"""

import ctypes
import os
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regmax.kernels import KERNELS

ABI_VERSION = 2
CODES = {name: code for code, name in enumerate(KERNELS) if name != "softmax"}
# The kernels whose groups are runs of neighbours: their backward needs the bits `joined`.
CHAINED = frozenset({"fusedmax", "prox_tv1d"})

_STATUS = {1: "out of memory", 2: "bad argument"}
_P, _I, _N, _X = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_double
_PROX_OWL_TYPES = [_P, _P, _N, _N, _P, _I]


def _find_library() -> Path | None:
    """The built core: where REGMAX_LIBRARY points, or beside the package's files."""
    if named := os.environ.get("REGMAX_LIBRARY"):
        return Path(named)
    for folder in import_module("regmax").__path__:
        for suffix in (".so", ".dylib", ".dll"):
            if (path := Path(folder) / f"_core{suffix}").exists():
                return path
    return None


def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    if (version := library.regmax_abi_version()) != ABI_VERSION:
        raise ImportError(
            f"{path} speaks version {version} of the core's interface, not {ABI_VERSION}: reinstall regmax."
        )
    library.regmax_instruction_set.restype = ctypes.c_char_p
    library.regmax_use_instruction_set.argtypes = [ctypes.c_char_p]
    library.regmax_borrow_threads.argtypes, library.regmax_borrow_threads.restype = [_P], None
    return library


def _load_module(path: Path) -> ModuleType:
    """The same file as a Python module: what is called for every row of a model, quicker than by ctypes."""
    spec = spec_from_file_location(
        "regmax._core", path, loader=ExtensionFileLoader("regmax._core", str(path))
    )
    assert spec is not None
    return module_from_spec(spec)


_path = _find_library()
_library = None if _path is None else _load(_path)
_module = None if _path is None else _load_module(_path)


def by_itemsize(name: str, types: list[Any]) -> dict[int, Callable[..., int]]:
    """The C function `regmax_<name>_f32` under 4 and its twin in double under 8; empty without the core."""
    functions: dict[int, Callable[..., int]] = {}
    if _library is not None:
        for itemsize, suffix in ((4, "f32"), (8, "f64")):
            function = _library[f"regmax_{name}_{suffix}"]
            function.argtypes, function.restype = types, ctypes.c_int32
            functions[itemsize] = function
    return functions


def _quick_by_itemsize(name: str) -> dict[int, Callable[..., int]]:
    """The same by the Python module: arguments are numbers, pointers as integers, or None."""
    suffixes = {} if _module is None else {4: "f32", 8: "f64"}
    return {itemsize: getattr(_module, f"{name}_{suffix}") for itemsize, suffix in suffixes.items()}


ARGMAX = _quick_by_itemsize("argmax")
JACOBIAN_PRODUCT = _quick_by_itemsize("jacobian_product")
PROX_OWL = by_itemsize("prox_owl", _PROX_OWL_TYPES)


def available() -> bool:
    """Whether the C++ core was built and runs."""
    return _library is not None


def instruction_set() -> str:
    """The instruction set that the core uses on this machine."""
    if _library is None:
        raise RuntimeError("`instruction_set()` needs the native core. Got an installation without it.")
    return str(_library.regmax_instruction_set().decode())


def use_instruction_set(name: str) -> None:
    """Choose an instruction set by name, for tests and benchmarks."""
    if _library is None or _library.regmax_use_instruction_set(name.encode()) != 0:
        raise ValueError(f"`use_instruction_set(name)` must name one that this machine has. Got {name!r}.")


def borrow_threads(gomp_parallel: int | None) -> None:
    """Take threads from the OpenMP whose GOMP_parallel is at this address; None: from a pool of the core's own."""
    if _library is not None:
        _library.regmax_borrow_threads(gomp_parallel)


def function(name: str, types: list[Any], result: Any) -> Callable[..., Any]:
    """The C function `regmax_<name>`, which has no twin."""
    if _library is None:
        raise RuntimeError(f"`regmax_{name}` needs the native core. Got an installation without it.")
    found = _library[f"regmax_{name}"]
    found.argtypes, found.restype = types, result
    return found


def check(status: int) -> None:
    """Raise what the core's status says."""
    if status != 0:
        error = MemoryError if status == 1 else RuntimeError
        raise error(f"regmax's native core failed: {_STATUS.get(status, status)}.")


def _pointer(array: NDArray[Any] | None) -> int | None:
    return None if array is None else array.ctypes.data


def _theta(theta: Any) -> tuple[float, NDArray[np.float64] | None]:
    """A number for all rows, or one per row."""
    if theta is None or np.ndim(theta) == 0:
        return (0.0 if theta is None else float(theta)), None
    return 0.0, np.ascontiguousarray(theta, dtype=np.float64)


def _keep(keep: NDArray[np.bool_] | None) -> tuple[int | None, int, int]:
    return (None, 1, 1) if keep is None else (_pointer(keep), keep.shape[0], 1)


def argmax(kernel: str, x: NDArray[Any], keep: NDArray[np.bool_] | None, theta: Any) -> NDArray[Any]:
    """Map every row of `x`, contiguous and of shape (n, d)."""
    y = np.empty_like(x)
    number, thetas = _theta(theta)
    check(
        ARGMAX[x.itemsize](
            CODES[kernel],
            _pointer(x),
            _pointer(y),
            None,
            None,
            *x.shape,
            *_keep(keep),
            number,
            _pointer(thetas),
            _threads(),
        )
    )
    return y


def jacobian_product(
    kernel: str, y: NDArray[Any], v: NDArray[Any], keep: NDArray[np.bool_] | None, theta: Any
) -> NDArray[Any]:
    """J v for every row, J being read off the mapping's result `y`."""
    out = np.empty_like(y)
    number, thetas = _theta(theta)
    check(
        JACOBIAN_PRODUCT[y.itemsize](
            CODES[kernel],
            _pointer(y),
            None,
            None,
            _pointer(v),
            _pointer(out),
            *y.shape,
            *_keep(keep),
            number,
            _pointer(thetas),
            _threads(),
        )
    )
    return out


def prox_owl(x: NDArray[Any], weights: NDArray[np.float64]) -> NDArray[Any]:
    """The proximal operator of the ordered weighted L1 norm, row by row."""
    z = np.empty_like(x)
    check(PROX_OWL[x.itemsize](_pointer(x), _pointer(z), *x.shape, _pointer(weights), _threads()))
    return z


def _threads() -> int:
    """NumPy has no thread setting of its own: one per core that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
