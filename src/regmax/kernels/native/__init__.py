"""The C++ core (csrc/regmax.h), called through the extension module `regmax._core`.

`argmax`, `jacobian_product` and `prox_owl` are the kernels' interface on NumPy arrays and contiguous CPU tensors.
`core` is the module itself, which takes addresses: front ends call it directly to save overhead. `attention` needs
torch and is imported separately.
"""

from regmax.kernels.native.library import (
    ScreenCounts,
    available,
    borrow_threads,
    core,
    force_tier,
    instruction_set,
    int8_screen,
    load,
    screen_counts,
    use_instruction_set,
    use_int8_screen,
)
from regmax.kernels.native.rows import CHAINED, CODES, LEADING, argmax, jacobian_product, prox_owl

__all__ = [
    "CHAINED",
    "CODES",
    "LEADING",
    "ScreenCounts",
    "argmax",
    "available",
    "borrow_threads",
    "core",
    "force_tier",
    "instruction_set",
    "int8_screen",
    "jacobian_product",
    "load",
    "prox_owl",
    "screen_counts",
    "use_instruction_set",
    "use_int8_screen",
]
