"""Attention on JAX arrays, with dense weights."""

from math import sqrt
from typing import Any

import jax.numpy as jnp
from jax import Array

from regmax.arrays import framework
from regmax.frontends.checks import broadcasts
from regmax.resolver import Resolved

CALL = "attention(q, k, v)"


def jax_attention(
    q: Array,
    k: Array,
    v: Array,
    mapping: Resolved,
    mask: Any,
    bias: Any,
    is_causal: bool,
    dropout_p: float,
    scale: float | None,
    enable_gqa: bool,
    return_weights: Any,
) -> Any:
    """The output, or that and the dense weights; arguments as in `attention`."""
    _check(q, k, v, dropout_p, return_weights)
    if enable_gqa:
        k, v = _repeated(q, k), _repeated(q, v)
    scores = jnp.einsum(
        "...qe,...ke->...qk", q * (1 / sqrt(max(q.shape[-1], 1)) if scale is None else scale), k
    )
    for name, part in (("mask", mask), ("bias", bias)):
        if part is not None and not broadcasts(part.shape, scores.shape):
            raise ValueError(
                f"`{CALL[:-1]}, {name}=...)` must broadcast to the scores' shape {scores.shape}. Got {part.shape}."
            )
    if bias is not None:
        scores = scores + jnp.asarray(bias, scores.dtype)
    if is_causal:
        seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        mask = seen if mask is None else seen & mask
    y = mapping(scores, -1, mask=mask)
    out = jnp.einsum("...qk,...kv->...qv", y, v)
    return (out, y) if return_weights else out


def check_no_variants(**options: Any) -> None:
    """Raise for the options that only tensors have."""
    for name, value in options.items():
        if value is not None:
            raise ValueError(
                f"`{CALL[:-1]}, {name}=...)` needs torch tensors. Got JAX arrays: pass a mask or a bias."
            )


def _check(q: Any, k: Any, v: Any, dropout_p: float, return_weights: Any) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if framework(x) != "jax":
            raise TypeError(f"`{CALL}` needs arrays of one framework. Got {type(x).__name__} for {name}.")
        if not jnp.issubdtype(x.dtype, jnp.floating):
            raise TypeError(f"`{CALL}` needs floating-point arrays. Got {x.dtype} for {name}.")
        if x.ndim < 2:
            raise ValueError(
                f"`{CALL}` needs at least a length and a head dimension. Got {x.shape} for {name}."
            )
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"`{CALL}`: q and k need one head dimension. Got {q.shape[-1]} and {k.shape[-1]}.")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"`{CALL}`: k and v need one length. Got {k.shape[-2]} and {v.shape[-2]}.")
    if dropout_p:
        raise ValueError(
            f"`{CALL[:-1]}, dropout_p=...)` must be 0 for JAX arrays. Got {dropout_p}: drop weights with a key, and "
            "`return_weights=True`."
        )
    if return_weights == "sparse":
        raise ValueError(
            f"`{CALL[:-1]}, return_weights=...)` must be a boolean for JAX arrays. Got 'sparse'."
        )


def _repeated(q: Array, k: Array) -> Array:
    """Keys or values with one head per head of queries."""
    if min(q.ndim, k.ndim) < 3 or q.shape[-3] % k.shape[-3]:
        raise ValueError(
            f"`{CALL[:-1]}, enable_gqa=True)` needs a multiple of k's heads in q. Got {q.shape} and {k.shape}."
        )
    return jnp.repeat(k, q.shape[-3] // k.shape[-3], axis=-3)
