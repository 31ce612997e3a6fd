"""The kernel interface: every mapping as a function on rows, and its Jacobian product.

Four implementations of one interface, on rows (n, d):

* `reference` -- one row at a time, exact to rounding: the specification that the others are tested against;
* `native` -- the C++ core, on NumPy arrays and CPU tensors;
* `tensors` -- batched PyTorch operations, on every device;
* `triton` -- kernels for GPUs, without the proximal operators and softmax; experimental.

`argmax(kernel, x, keep=None, theta=None, *, gamma=1.0)` maps the rows of x / gamma, and
`jacobian_product(kernel, y, v, keep=None, theta=None, *, gamma=1.0)` computes J v / gamma, J the Jacobian at
x / gamma, from the result `y`. `kernel` is one of `KERNELS`; `keep` is None or boolean, True = keep; `theta` is
the kernel's strength (`lam`, `p` or `alpha`); `theta` and `gamma` are numbers or one per row. Division by gamma never
turns a finite score into -inf, which would delete it. `native` has no softmax and forwards it to the other two.
"""

from typing import Literal, NamedTuple


class Kernel(NamedTuple):
    """The properties of a kernel that callers need: which equal values form groups, and how its Jacobian varies."""

    groups: Literal["none", "segments", "clusters"]  # none, adjacent equal values, equal values anywhere
    constant_jacobian: bool  # around almost every point
    core: bool = (
        True  # False: not in the C++ core, so on the CPU too the reference and tensor operations compute it
    )
    triton: bool = False  # False: on GPUs tensor operations compute it


# The order is the C interface's enumeration (csrc/regmax.h); kernels that are not in the core come last.
KERNELS = {
    "sparsemax": Kernel("none", constant_jacobian=True, triton=True),
    "fusedmax": Kernel("segments", constant_jacobian=True, triton=True),
    "oscarmax": Kernel("clusters", constant_jacobian=True, triton=True),
    "sqpnormmax": Kernel("none", constant_jacobian=False, triton=True),
    "prox_tv1d": Kernel("segments", constant_jacobian=True),
    "prox_oscar": Kernel("clusters", constant_jacobian=True),
    "entmax": Kernel("none", constant_jacobian=False, triton=True),
    "softmax": Kernel("none", constant_jacobian=False, core=False),
}
