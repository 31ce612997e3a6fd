"""One thread pool for torch and the core.

torch computes on OpenMP threads, which spin for some milliseconds after each operation, so a second pool would compete
with them for the processor. The core therefore runs on the same threads.
"""

import ctypes
from pathlib import Path

import torch

from regmax.kernels import native


def _gomp_parallel() -> int | None:
    """The address of GOMP_parallel in the OpenMP runtime that torch is linked to, or None if that has none."""
    for path in (Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*"):
        try:
            # Looked up through libtorch_cpu, so that another library's OpenMP is not mistaken for torch's.
            return ctypes.cast(ctypes.CDLL(str(path)).GOMP_parallel, ctypes.c_void_p).value
        except (OSError, AttributeError):
            continue
    return None


def share() -> None:
    """Let the core run on torch's threads."""
    native.borrow_threads(_gomp_parallel())
