"""Front ends for arrays and autograd: one module per framework, chosen by the array's type.

A front end checks the arguments, lays the scores out as contiguous rows, calls the kernels, and restores the layout.
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
            f"`{call}` needs a NumPy array, a torch tensor or a JAX array. Got {type(x).__name__}: "
            "use `numpy.asarray(...)`, `torch.as_tensor(...)` or `jax.numpy.asarray(...)`."
        )
    # Import statements and no `import_module`: torch.compile can trace them if it sees the first call.
    if name == "torch":
        from regmax.frontends import torch

        return torch
    if name == "jax":
        from regmax.frontends import jax

        return jax
    from regmax.frontends import numpy

    return numpy
