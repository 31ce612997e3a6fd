"""The optional arguments of every function on rows, and deletion without data-dependent shapes."""

from typing import Any

import jax.numpy as jnp
from jax import Array


def kept_positions(keep: Array | None, x: Array) -> Array:
    """Return `keep` in the shape of `x`, True everywhere for None."""
    return jnp.ones(x.shape, bool) if keep is None else jnp.broadcast_to(keep, x.shape)


def as_array(theta: Any, like: Array) -> Array:
    """Return a strength as an array that broadcasts against rows; NaN if a kernel has none.

    One number per row, an array of one dimension less than the rows, gets a last dimension.
    """
    array = jnp.asarray(jnp.nan if theta is None else theta, like.dtype)
    return array[..., None] if 0 < array.ndim == like.ndim - 1 else array


def below_peak(x: Array) -> Array:
    """Return x - max(x); a row in which every score is -inf is unchanged."""
    peak = x.max(-1, keepdims=True)
    return x - jnp.where(peak > -jnp.inf, peak, 0)


def divided(kernel: str, x: Array, kept: Array, gamma: Any) -> Array:
    """Return x / gamma, saturated so that no score becomes infinite; `x` is finite.

    A mapping onto the simplex does not change if a constant is added to its scores: they are divided relative to the
    largest kept score. Those of a proximal operator are not.
    """
    if isinstance(gamma, int | float) and gamma == 1:
        return x
    if not kernel.startswith("prox"):
        top = jnp.where(kept, x, -jnp.inf).max(-1, keepdims=True)
        x = jnp.where(kept, x - top, 0)
    most = jnp.finfo(x.dtype).max
    return jnp.clip(x / as_array(gamma, x), -most, most)


class Chain:
    """The kept positions of every row, compacted to its front in order."""

    def __init__(self, kept: Array) -> None:
        before = jnp.cumsum(kept, -1) - 1
        self.count = before[..., -1:] + 1
        self._place = jnp.where(kept, before, self.count + jnp.cumsum(~kept, -1) - 1)
        self._index = jnp.arange(kept.shape[-1])

    def pack(self, x: Array) -> Array:
        return jnp.put_along_axis(jnp.zeros_like(x), self._place, x, axis=-1, inplace=False)

    def unpack(self, x: Array) -> Array:
        return jnp.take_along_axis(x, self._place, -1)

    @property
    def occupied(self) -> Array:
        """True at the packed positions that hold a kept position."""
        return self._index < self.count

    @property
    def edges(self) -> Array:
        """True if packed positions i - 1 and i both hold kept positions."""
        return (self._index > 0) & (self._index < self.count)


def sort_descending(x: Array) -> tuple[Array, Array]:
    """Return the rows in decreasing order and the indices; equal numbers keep their order."""
    order = jnp.argsort(x, axis=-1, descending=True, stable=True)
    return jnp.take_along_axis(x, order, -1), order


def restored(x: Array, order: Array) -> Array:
    """Return sorted rows in their original order."""
    return jnp.put_along_axis(jnp.zeros_like(x), order, x, axis=-1, inplace=False)
