"""The mappings and their Jacobian products as JAX operations, for any device and in float32 or float64.

Rows lie along the last dimension. The functions have static shapes and work under `jax.jit`. `argmax` is a forward
function, to which the front end attaches derivatives; the products of softmax, sqpnormmax and entmax, `theta_gradient`
and `omega_gradient` are differentiable themselves, which gives second derivatives.
"""

from regmax.kernels.jnp.jacobians import jacobian_product
from regmax.kernels.jnp.mappings import argmax
from regmax.kernels.jnp.strength import theta_gradient

__all__ = ["argmax", "jacobian_product", "theta_gradient"]
