"""The mappings and their Jacobian products as batched PyTorch operations, for any device.

Rows lie along the last dimension, without a loop over them: every function is a fixed sequence of tensor operations
whose shapes depend only on the shapes of its arguments. Nothing is read back to the host, so the functions run
asynchronously on an accelerator, on meta and fake tensors, under `torch.compile(fullgraph=True)` and `torch.vmap`.
The arithmetic is that of the given dtype, float32 or float64; on the CPU it is float64.

`argmax` and `prox_owl` are forward functions, to which the front end attaches gradients; the products,
`theta_gradient` and `omega_gradient` are differentiable themselves, which gives second derivatives.
"""

from regmax.kernels.tensors.jacobians import jacobian_product
from regmax.kernels.tensors.mappings import argmax
from regmax.kernels.tensors.owl import prox_owl, prox_owl_jacobian_product
from regmax.kernels.tensors.strength import omega_gradient, theta_gradient

__all__ = [
    "argmax",
    "jacobian_product",
    "omega_gradient",
    "prox_owl",
    "prox_owl_jacobian_product",
    "theta_gradient",
]
