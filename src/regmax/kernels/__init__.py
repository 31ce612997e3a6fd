"""The narrow waist: every mapping as a function on rows, and its Jacobian product.

Three implementations of one contract, `x` being scores already divided by gamma, along the last dimension:

* `reference` -- NumPy, one row at a time: the specification that the others are tested against;
* `native` -- the C++ core: what runs on the CPU;
* `tensors` -- batched PyTorch operations: what runs on every other device.

`argmax(kernel, x, keep, theta)` maps rows and `jacobian_product(kernel, y, v, keep, theta)` multiplies by the
mapping's Jacobian, read off the result `y`. `kernel` is one of `KERNELS`; `keep` is None or boolean, True where a
score takes part; `theta` is the kernel's strength (`lam` or `p`), a number or one per row.
"""

# The order is the C interface's enumeration (csrc/regmax.h), with softmax, which needs no core, at the end.
KERNELS = ("sparsemax", "fusedmax", "oscarmax", "sqpnormmax", "prox_tv1d", "prox_oscar", "softmax")
