"""One set of threads for torch and the core.

torch computes on OpenMP's threads, which spin for some milliseconds after each operation: a pool of the core's own
would find the cores taken. The core therefore runs on those same threads.
"""

import ctypes
from pathlib import Path

import torch

from regmax.kernels import native


def _gomp_parallel() -> int | None:
    """The address of GOMP_parallel in the OpenMP that torch itself is linked to, or None where it uses another."""
    for path in (Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*"):
        try:
            # Found in what libtorch_cpu depends on, so that no other library's OpenMP is taken for torch's.
            return ctypes.cast(ctypes.CDLL(str(path)).GOMP_parallel, ctypes.c_void_p).value
        except (OSError, AttributeError):
            continue
    return None


def share() -> None:
    """Let the core run on torch's threads."""
    native.borrow_threads(_gomp_parallel())
