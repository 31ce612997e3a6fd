"""`theta_gradient`: how the mappings change with their strengths. The formulas are those of `tensors.strength`."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array

from regmax.kernels.jnp.groups import following, preceding
from regmax.kernels.jnp.rows import Chain, as_array, kept_positions, restored, sort_descending


def theta_gradient(kernel: str, y: Array, keep: Array | None = None, theta: Any = None) -> Array:
    """Return g = d/dtheta grad Omega(y) for every row, so that dy / dtheta = -J g; zeros for a kernel without theta."""
    if y.shape[-1] == 0 or kernel not in _GRADIENT:
        return jnp.zeros_like(y)
    kept = kept_positions(keep, y)
    gradient = _GRADIENT[kernel](jnp.where(kept, y, 0), kept, as_array(theta, y))
    return jnp.where(kept, gradient, 0)


def _total_variation(y: Array, kept: Array, lam: Array) -> Array:
    chain = Chain(kept)
    packed = chain.pack(y)
    steps = jnp.where(chain.edges, jnp.sign(packed - preceding(packed)), 0)
    after = jnp.where(jnp.arange(y.shape[-1]) == y.shape[-1] - 1, 0, following(steps))
    return chain.unpack(steps - after)


def _oscar(y: Array, kept: Array, lam: Array) -> Array:
    _, order = sort_descending(jnp.where(kept, abs(y), -1))
    weights = (kept.sum(-1, keepdims=True) - jnp.arange(1, y.shape[-1] + 1)).astype(y.dtype)
    return jnp.sign(y) * restored(weights, order)


def _squared_pnorm(y: Array, kept: Array, p: Array) -> Array:
    support = y > 0
    # Outside the support logarithms and powers are applied to 1, to avoid infinite derivatives times zero.
    positive = jnp.where(support, y, 1)
    logarithm = jnp.log(positive)
    power = jnp.where(support, positive**p, 0)
    total = power.sum(-1, keepdims=True)
    mass = jnp.where(total > 0, total, 1)
    log_norm = jnp.log(mass) / p
    slope = ((power * logarithm).sum(-1, keepdims=True) / mass - log_norm) / p
    gradient = positive ** (p - 1) * mass ** ((2 - p) / p)
    return jnp.where(support, gradient * (logarithm - log_norm + (2 - p) * slope), 0)


def _tsallis(y: Array, kept: Array, alpha: Array) -> Array:
    support = y > 0
    logarithm = jnp.log(jnp.where(support, y, 1))
    return jnp.where(support, logarithm**2 * _slope_of_exponential_ratio((alpha - 1) * logarithm), 0)


_NEAR, _TERMS = 0.5, 14  # the series is exact to rounding for |t| < _NEAR


def _slope_of_exponential_ratio(t: Array) -> Array:
    """(t exp(t) - exp(t) + 1) / t^2, by its power series for small t."""
    near = abs(t) < _NEAR
    small, far = jnp.where(near, t, 0), jnp.where(near, 1, t)
    series = jnp.ones_like(t)
    for k in range(_TERMS, 0, -1):
        series = 1 + small * series * ((k + 1) / (k * (k + 2)))
    return jnp.where(near, series / 2, (far * jnp.exp(far) - jnp.expm1(far)) / far**2)


_GRADIENT: dict[str, Callable[[Array, Array, Array], Array]] = {
    "fusedmax": _total_variation,
    "oscarmax": _oscar,
    "sqpnormmax": _squared_pnorm,
    "entmax": _tsallis,
    "prox_tv1d": _total_variation,
    "prox_oscar": _oscar,
}
