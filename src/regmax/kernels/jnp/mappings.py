"""`argmax`: the mappings on rows, with deletion. The arguments for clamping are those of `tensors.mappings`."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array

from regmax.kernels.jnp.groups import (
    equal_neighbours,
    equalized,
    first_values,
    following,
    isotonic_decreasing,
    preceding,
    total_variation,
)
from regmax.kernels.jnp.rows import (
    Chain,
    as_array,
    below_peak,
    divided,
    kept_positions,
    restored,
    sort_descending,
)
from regmax.kernels.jnp.simplex import project_simplex, softmax, squared_pnorm_argmax, tsallis_argmax


def argmax(kernel: str, x: Array, keep: Array | None = None, theta: Any = None, *, gamma: Any = 1.0) -> Array:
    """Return the mapping `kernel` of every row of `x / gamma` (..., d). Arguments as in `tensors.argmax`."""
    if x.shape[-1] == 0:
        return jnp.zeros_like(x)
    allowed = kept_positions(keep, x)
    kept = allowed & (x != -jnp.inf)
    spoiled = (kept & ~(x < jnp.inf)).any(-1, keepdims=True)  # NaN compares False too
    scores = divided(kernel, jnp.where(kept & ~spoiled, x, 0), kept, gamma)
    y = jnp.where(kept, _ARGMAX[kernel](scores, kept, as_array(theta, x)), 0)
    return jnp.where(spoiled & allowed, jnp.nan, y)


def _simplex(mapping: Callable[[Array, Array], Array]) -> Callable[[Array, Array, Array], Array]:
    """A mapping that takes deleted positions as scores of -inf."""
    return lambda x, kept, theta: mapping(jnp.where(kept, x, -jnp.inf), theta)


def _fusedmax(x: Array, kept: Array, lam: Array) -> Array:
    x = jnp.maximum(below_peak(jnp.where(kept, x, -jnp.inf)), -1 - 4 * lam)
    chain = Chain(kept)
    z = total_variation(chain.pack(x), lam * chain.edges)
    return chain.unpack(project_simplex(jnp.where(chain.occupied, z, -jnp.inf)))


def _oscarmax(x: Array, lam: Array) -> Array:
    d = x.shape[-1]
    x = jnp.maximum(below_peak(x), -1 - lam * (d - 1))
    descending, order = sort_descending(x)
    z = isotonic_decreasing(descending + lam * jnp.arange(1, d + 1, dtype=x.dtype))
    return restored(project_simplex(equalized(z, equal_neighbours(descending))), order)


def _prox_tv1d(x: Array, kept: Array, lam: Array) -> Array:
    chain = Chain(kept)
    packed, edges = chain.pack(x), lam * chain.edges
    steps = packed - preceding(packed)
    cut = (abs(steps) > 4 * lam) & chain.edges
    pull = jnp.where(cut, edges * jnp.sign(steps), 0)
    pull_after = jnp.where(jnp.arange(x.shape[-1]) == x.shape[-1] - 1, 0, following(pull))
    origin = first_values(packed, ~cut & (jnp.arange(x.shape[-1]) > 0))
    centred = jnp.where(chain.occupied, packed - origin + (pull_after - pull), 0)
    z = total_variation(centred, jnp.where(cut, 0, edges)) + origin
    z = equalized(z, equal_neighbours(packed) & chain.occupied)  # one of two equal scores may be at a cut
    return jnp.where(lam > 0, chain.unpack(z), x)


def _prox_oscar(x: Array, kept: Array, lam: Array) -> Array:
    descending, order = sort_descending(abs(x))
    ranks = jnp.arange(1, x.shape[-1] + 1)
    weights = lam * jnp.maximum(kept.sum(-1, keepdims=True) - ranks, 0)
    magnitude = restored(jnp.maximum(isotonic_decreasing(descending - weights), 0), order)
    return jnp.where(magnitude > 0, jnp.copysign(magnitude, x), 0)


_ARGMAX: dict[str, Callable[[Array, Array, Array], Array]] = {
    "softmax": _simplex(lambda x, _: softmax(x)),
    "sparsemax": _simplex(lambda x, _: project_simplex(x)),
    "fusedmax": _fusedmax,
    "oscarmax": _simplex(_oscarmax),
    "sqpnormmax": _simplex(squared_pnorm_argmax),
    "entmax": _simplex(tsallis_argmax),
    "prox_tv1d": _prox_tv1d,
    "prox_oscar": _prox_oscar,
}
