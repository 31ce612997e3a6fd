"""Scans of Triton's interpreter in tree order, as on a GPU.

The interpreter scans from left to right, one Python call per element: a combine that is not associative passes, and a
tile takes seconds. Here log2(d) steps combine whole arrays that are shifted by 1, 2, 4, ... positions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from triton.runtime import interpreter

LEFT_TO_RIGHT = interpreter.ScanOps.generic_scan


def tree_scan(self: Any, inputs: tuple[Any, ...]) -> list[Any]:
    """`ScanOps.generic_scan` in tree order; a reversed scan arrives flipped."""
    kinds = [tensor.dtype for tensor in inputs]
    arrays = [np.moveaxis(np.array(tensor.handle.data), self.axis, -1) for tensor in inputs]
    size, reach = arrays[0].shape[-1], 1

    def tensors(parts: list[np.ndarray]) -> list[Any]:
        return [
            self.to_tensor(np.ascontiguousarray(np.moveaxis(part, -1, self.axis)), kind)
            for part, kind in zip(parts, kinds, strict=True)
        ]

    while reach < size:
        # Blocks stay powers of two: the first `reach` entries are combined with anything, and dropped.
        moved = [np.roll(array, reach, -1) for array in arrays]
        combined = self.combine_fn.fn(*tensors(moved), *tensors(arrays))
        combined = combined if isinstance(combined, tuple) else (combined,)
        for array, result in zip(arrays, combined, strict=True):
            values = np.moveaxis(result.handle.data, self.axis, -1)
            array[..., reach:] = values[..., reach:]
        reach *= 2
    return tensors(arrays)


def install() -> None:
    """Replace the interpreter's scans."""
    interpreter.ScanOps.generic_scan = tree_scan
