"""The mappings on GPUs, as Triton kernels with the kernels' interface.

`argmax` and `jacobian_product` are those of `regmax.kernels`, on rows (n, d) of float16, bfloat16, float32 or float64;
`strength_grads` adds the gradients of theta and gamma. They run on CUDA and ROCm tensors, and under Triton's
interpreter (TRITON_INTERPRET=1) on CPU tensors. Experimental: proven in the interpreter and by offline compilation,
not yet run on a device. The environment variable REGMAX_TRITON=0 turns them off.

Tiles (`simplex`, `chains`, `clusters`, `products`) are device functions; `row_kernels` and `products` hold the kernels
of rows that fit into a tile, `long_rows` and `long_products` those of longer ones, and `launch` starts them.
Importing this package does not import triton.
"""

import os
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from regmax.kernels import KERNELS

# The mappings that have Triton kernels; tensor operations compute the others.
CHOSEN = frozenset(name for name, kernel in KERNELS.items() if kernel.triton)


@lru_cache(maxsize=1)
def installed() -> bool:
    """Whether triton can be imported."""
    return find_spec("triton") is not None


def available() -> bool:
    """Whether these kernels may be used: triton is installed, and REGMAX_TRITON is not 0."""
    return os.environ.get("REGMAX_TRITON", "1") != "0" and installed()


def __getattr__(name: str) -> Any:
    if name in ("argmax", "jacobian_product", "strength_grads"):
        return getattr(import_module("regmax.kernels.triton.launch"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
