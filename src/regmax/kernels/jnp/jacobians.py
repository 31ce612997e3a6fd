"""`jacobian_product`: J v from the result y. The formulas are those of `tensors.jacobians`."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array

from regmax.kernels.jnp.groups import Groups, equal_neighbours
from regmax.kernels.jnp.rows import Chain, as_array, kept_positions, restored, sort_descending


def jacobian_product(
    kernel: str, y: Array, v: Array, keep: Array | None = None, theta: Any = None, *, gamma: Any = 1.0
) -> Array:
    """Return J v / gamma for every row, J the Jacobian at the scores whose result is `y`; linear in v."""
    if y.shape[-1] == 0:
        return jnp.zeros_like(v)
    kept = kept_positions(keep, y)
    spoiled = (jnp.isnan(y) & kept).any(-1, keepdims=True)
    y, v = jnp.where(kept & ~spoiled, y, 0), jnp.where(kept, v, 0)
    product = jnp.where(kept, _PRODUCT[kernel](y, v, kept, as_array(theta, y)), 0)
    product = jnp.where(spoiled & kept, jnp.nan, product)
    return product if isinstance(gamma, int | float) and gamma == 1 else product / as_array(gamma, y)


def _softmax(y: Array, v: Array) -> Array:
    return y * (v - (y * v).sum(-1, keepdims=True))


def _sparsemax(y: Array, v: Array) -> Array:
    support = y > 0
    size = jnp.maximum(support.sum(-1, keepdims=True), 1).astype(y.dtype)
    return jnp.where(support, v - jnp.where(support, v, 0).sum(-1, keepdims=True) / size, 0)


def _fusedmax(y: Array, v: Array, kept: Array, lam: Array) -> Array:
    return _sparsemax(y, _prox_tv1d(y, v, kept, lam))


def _oscarmax(y: Array, v: Array, lam: Array) -> Array:
    descending, order = sort_descending(y)
    means = Groups(~equal_neighbours(descending)).means(jnp.take_along_axis(v, order, -1))
    return _sparsemax(y, jnp.where(lam > 0, restored(means, order), v))


def _sqpnormmax(y: Array, v: Array, p: Array) -> Array:
    support = y > 0
    # Outside the support the powers are applied to 1, to avoid infinite derivatives times zero, and then dropped.
    positive = jnp.where(support, y, 1)
    empty = ~support.any(-1, keepdims=True)
    mass = jnp.where(support, positive**p, 0).sum(-1, keepdims=True)
    norm = jnp.where(empty, 1, mass) ** (1 / p)
    diagonal = jnp.where(support, norm ** (p - 2) * positive ** (2 - p), 0)

    def inverse_hessian(u: Array) -> Array:
        return (diagonal * u - (2 - p) * norm**-2 * y * (y * u).sum(-1, keepdims=True)) / (p - 1)

    ones, straight = inverse_hessian(jnp.ones_like(y)), inverse_hessian(v)
    total = jnp.where(empty, 1, ones.sum(-1, keepdims=True))
    return straight - ones * (straight.sum(-1, keepdims=True) / total)


def _entmax(y: Array, v: Array, alpha: Array) -> Array:
    support = y > 0
    s = jnp.where(support, jnp.where(support, y, 1) ** (2 - alpha), 0)
    total = s.sum(-1, keepdims=True)
    return s * (v - (s * v).sum(-1, keepdims=True) / jnp.where(total > 0, total, 1))


def _prox_tv1d(z: Array, v: Array, kept: Array, lam: Array) -> Array:
    chain = Chain(kept)
    joined = equal_neighbours(chain.pack(z)) & chain.occupied
    return jnp.where(lam > 0, chain.unpack(Groups(~joined).means(chain.pack(v))), v)


def _prox_oscar(z: Array, v: Array, kept: Array, lam: Array) -> Array:
    ranks = jnp.arange(1, z.shape[-1] + 1)
    weights = jnp.broadcast_to(lam * jnp.maximum(kept.sum(-1, keepdims=True) - ranks, 0), z.shape)
    magnitude, order = sort_descending(abs(z))
    groups = Groups(~equal_neighbours(magnitude))
    sign, v = (jnp.take_along_axis(part, order, -1) for part in (jnp.sign(z), v))
    greatest, least = (jnp.take_along_axis(weights, end, -1) for end in (groups.first, groups.last))
    alone = (greatest == least) & ((magnitude > 0) | (greatest == 0))
    return restored(jnp.where(alone, v, sign * groups.means(sign * v)), order)


_PRODUCT: dict[str, Callable[[Array, Array, Array, Array], Array]] = {
    "softmax": lambda y, v, kept, theta: _softmax(y, v),
    "sparsemax": lambda y, v, kept, theta: _sparsemax(y, v),
    "fusedmax": _fusedmax,
    "oscarmax": lambda y, v, kept, theta: _oscarmax(y, v, theta),
    "sqpnormmax": lambda y, v, kept, theta: _sqpnormmax(y, v, theta),
    "entmax": lambda y, v, kept, theta: _entmax(y, v, theta),
    "prox_tv1d": _prox_tv1d,
    "prox_oscar": _prox_oscar,
}
