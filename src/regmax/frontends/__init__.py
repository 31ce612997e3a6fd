"""Arrays and autograd: a front end for each framework, found by the array's type.

A front end turns `dim`, `mask`, `gamma` and float types into contiguous rows, calls the kernels, and undoes it.
"""

from typing import Any

from regmax.arrays import check_plain, framework

_by_type: dict[type, Any] = {}


def frontend(call: str, x: Any) -> Any:
    """The front end module that works on `x`."""
    found = _by_type.get(type(x))
    if found is None:
        found = _by_type[type(x)] = _import_frontend(call, x)
    return found


def _import_frontend(call: str, x: Any) -> Any:
    check_plain(call, x)
    name = framework(x)
    if name is None:
        raise TypeError(
            f"`{call}` needs a NumPy array or a torch tensor. Got {type(x).__name__}: "
            "use `numpy.asarray(...)` or `torch.as_tensor(...)`."
        )
    # Import statements, because a compiler that meets the first call can follow them.
    if name == "torch":
        from regmax.frontends import torch

        return torch
    from regmax.frontends import numpy

    return numpy
