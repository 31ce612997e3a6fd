"""Laying JAX arrays out as rows: `dim` last, float32 or float64, masks and strengths of the scores' rank."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from regmax.arrays import check_plain, framework, is_array
from regmax.frontends.checks import check_dim, check_mask, check_scores, parameter_shape
from regmax.regularizers.base import Bounds


class Rows(NamedTuple):
    """Scores with rows along the last dimension, and their original layout."""

    x: Array  # (..., d)
    keep: Array | None  # of the rank of x, broadcasts to it
    theta: Any  # None, a number, or an array that broadcasts to x[..., :1]
    gamma: Any  # a number, or an array that broadcasts to x[..., :1]
    dim: int
    dtype: Any

    def restore(self, y: Array) -> Array:
        """Weights in the scores' layout and dtype."""
        return jnp.moveaxis(y, -1, self.dim).astype(self.dtype)

    @property
    def kept(self) -> Array:
        """The positions that take part: kept by the mask, and not -inf."""
        finite = self.x != -jnp.inf
        return finite if self.keep is None else finite & self.keep

    def divided(self, *, centred: bool = True) -> Array:
        """The scores divided by gamma, with `centred` relative to the row's largest kept one; deleted ones are -inf.

        The quotients saturate, so that no finite score becomes -inf, which would delete it. Deleted scores are not
        divided: their weight is zero, but they would make gamma's gradient NaN.
        """
        x, gamma = self.x, self.gamma
        if (isinstance(gamma, int | float) and gamma == 1) or not x.shape[-1]:
            return x
        kept, most = self.kept, jnp.finfo(x.dtype).max
        scores = jnp.where(kept, x, 0)
        if centred:
            top = jax.lax.stop_gradient(jnp.where(kept, x, -jnp.inf).max(-1, keepdims=True))
            scores = jnp.maximum(scores - jnp.where(jnp.isfinite(top), top, 0), -most)
        scores = jnp.where(jnp.isfinite(scores), jnp.clip(scores / gamma, -most, most), scores)
        return jnp.where(kept, scores, -jnp.inf)


def prepare(
    call: str, x: Array, dim: int, gamma: Any, mask: Any, theta: Any = None, bounds: Bounds | None = None
) -> Rows:
    """Check the arguments and lay the scores out as rows."""
    check_scores(call, x)
    dim, dtype = check_dim(call, dim, x.ndim), x.dtype
    gamma = _parameter(call, gamma, Bounds(f"{call}: gamma", above=0.0), x, dim)
    theta = None if bounds is None else _parameter(call, theta, bounds, x, dim)
    if mask is not None:
        check_mask(call, mask, x)
        mask = jnp.moveaxis(jnp.asarray(mask).reshape((1,) * (x.ndim - mask.ndim) + mask.shape), dim, -1)
        mask = jnp.broadcast_to(mask, (*mask.shape[:-1], x.shape[dim]))  # size 0 along the rows means no mask
    return Rows(jnp.moveaxis(x, dim, -1).astype(_work(dtype)), mask, theta, gamma, dim, dtype)


def _work(dtype: Any) -> Any:
    return dtype if dtype.itemsize > 4 else jnp.float32


def is_traced(x: Any) -> bool:
    """Whether the entries of an array are unknown."""
    return isinstance(x, jax.core.Tracer)


def _parameter(call: str, value: Any, bounds: Bounds, x: Array, dim: int) -> Any:
    """A strength, checked against its bounds: a number, or an array that broadcasts to x[..., :1], `dim` last."""
    check_plain(bounds.call, value)
    bounds.check(value)
    if not is_array(value):
        return value
    if framework(value) not in ("jax", "numpy"):
        raise TypeError(
            f"`{call}`: parameters of JAX scores are numbers or arrays. Got {type(value).__name__}."
        )
    if not is_traced(value) and value.size:
        for extreme in (value.min(), value.max()):
            bounds.check(float(extreme))
    full = jnp.asarray(value, _work(x.dtype)).reshape(parameter_shape(bounds.call, value.shape, x.shape, dim))
    return jnp.moveaxis(full, dim, -1)
