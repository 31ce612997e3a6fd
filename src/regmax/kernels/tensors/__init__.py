"""The mappings and their Jacobian products as batched PyTorch operations, for any device.

Rows lie along the last dimension and are never visited one by one: every function is a fixed sequence of tensor
operations whose shapes depend on the shapes of its arguments only. Nothing is read back to the host, so that they
queue on an accelerator, and run on meta and fake tensors, under `torch.compile(fullgraph=True)` and `torch.vmap`.
The arithmetic is that of the dtype given, float32 or float64.

`argmax` and `prox_owl` are the maps, their gradients are attached by the front end; the products and
`theta_gradient` are themselves differentiable, which gives second derivatives.
"""

from regmax.kernels.tensors.jacobians import jacobian_product
from regmax.kernels.tensors.mappings import argmax
from regmax.kernels.tensors.owl import prox_owl, prox_owl_jacobian_product
from regmax.kernels.tensors.strength import theta_gradient

__all__ = [
    "argmax",
    "jacobian_product",
    "prox_owl",
    "prox_owl_jacobian_product",
    "theta_gradient",
]
