"""The front end for JAX arrays, concrete or traced.

A strength that is a Python number is a constant of the compiled program; one that changes from call to call should be
an array. Entries of traced arrays cannot be checked against their bounds.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from regmax import duality
from regmax.arrays import framework
from regmax.frontends import numpy as numpy_frontend
from regmax.frontends.checks import check_classes, check_distribution, check_target
from regmax.frontends.jax import primitives
from regmax.frontends.jax.rows import Rows, is_traced, prepare
from regmax.regularizers import KernelRegularizer, Regularizer
from regmax.regularizers.base import Bounds


def mapping(omega: type[KernelRegularizer], theta: Any, x: Array, dim: int, gamma: Any, mask: Any) -> Array:
    """Pi_Omega(x), given the regularizer's class and strength."""
    return argmax(omega.made(theta), x, dim, gamma, mask)


def argmax(omega: Regularizer, x: Array, dim: int, gamma: Any, mask: Any) -> Array:
    """Pi_Omega(x) along `dim`."""
    known = _known("regularized_argmax(...)", omega)
    rows = prepare(known.call, x, dim, gamma, mask, known.theta, known.bounds)
    return rows.restore(_argmax_rows(known, rows))


def _known(call: str, omega: Regularizer) -> KernelRegularizer:
    if not isinstance(omega, KernelRegularizer):
        raise TypeError(
            f"`{call}` computes the named regularizers on JAX arrays. Got {type(omega).__name__}, whose `value` uses "
            "torch operations: use tensors."
        )
    return omega


def _argmax_rows(omega: KernelRegularizer, rows: Rows) -> Array:
    """The weights, by a compiled program: eager operations of JAX are slow."""
    number = rows.theta if isinstance(rows.theta, int | float) else None
    theta = None if number is not None else rows.theta
    gamma = None if isinstance(rows.gamma, int | float) and rows.gamma == 1 else rows.gamma
    kernels = omega.steps or (omega.kernel,)
    return _compiled(kernels, number, rows.x, rows.keep, theta, gamma)


@partial(jax.jit, static_argnums=(0, 1))
def _compiled(
    kernels: tuple[str, ...], number: float | None, x: Array, keep: Array | None, theta: Any, gamma: Any
) -> Array:
    rows = Rows(x, keep, number if theta is None else theta, 1.0 if gamma is None else gamma, -1, x.dtype)
    if not x.size:
        return jnp.zeros_like(x)
    if kernels == ("softmax",):
        return _softmax(rows)
    first, *later = kernels
    y = primitives.argmax(rows.divided(centred=not first.startswith("prox")), keep, rows.theta, first)
    for kernel in later:
        y = primitives.argmax(y, rows.kept, None, kernel)  # to which scores of -inf are no longer visible
    return y


def _softmax(rows: Rows) -> Array:
    x = rows.divided()
    x = x if rows.keep is None else jnp.where(rows.keep, x, -jnp.inf)
    # A row in which every score is -inf has zero weights and no gradient.
    dead = jax.lax.stop_gradient(x).max(-1, keepdims=True) == -jnp.inf
    y = jnp.where(dead, 0, jax.nn.softmax(jnp.where(dead, 0, x), -1))
    return y if rows.keep is None else jnp.where(rows.keep, y, 0)


def _lay_out(
    call: str, omega: Regularizer, x: Array, dim: int, gamma: Any, mask: Any
) -> tuple[KernelRegularizer, Rows]:
    """The regularizer whose argmax attains max_Omega, and the rows."""
    exact = _known(call, omega).exact
    return exact, prepare(call, x, dim, gamma, mask, exact.theta, exact.bounds)


def maximum(omega: Regularizer, x: Array, dim: int, gamma: Any, mask: Any) -> Array:
    """max_Omega(x) along `dim`; -inf for rows without kept positions."""
    exact, rows = _lay_out("regularized_max(...)", omega, x, dim, gamma, mask)
    centred, top = _centred(rows)
    y = _argmax_rows(exact, rows)
    entropy = exact.with_theta(rows.theta).value(y, rows.kept)[..., None]
    # Differentiating through y is correct at every order: what it adds to the gradient, J (x - grad Omega(y)), is zero.
    value = (centred * y).sum(-1, keepdims=True) - rows.gamma * entropy
    return (top + value)[..., 0].astype(rows.dtype)


def _centred(rows: Rows) -> tuple[Array, Array]:
    """The scores less their row's largest kept one, zero at deleted positions, and that one."""
    kept = rows.kept
    if not rows.x.shape[-1]:
        return rows.x, jnp.full((*rows.x.shape[:-1], 1), -jnp.inf, rows.x.dtype)
    top = jax.lax.stop_gradient(jnp.where(kept, rows.x, -jnp.inf).max(-1, keepdims=True))
    centred = jnp.where(kept, rows.x - jnp.where(top == -jnp.inf, 0, top), 0)
    return jnp.maximum(centred, jnp.finfo(centred.dtype).min), top  # -inf times a weight of 0 would be NaN


def duality_gap(omega: Regularizer, x: Array, y: Array, dim: int, gamma: Any, mask: Any) -> Array:
    """An upper bound on the suboptimality of y; in float64 unless it is traced."""
    known = _known("duality_gap(...)", omega)
    arguments = [known.theta, x, y, gamma, mask]
    if not any(is_traced(part) for part in arguments):
        theta, *rest = (np.asarray(a) if framework(a) == "jax" else a for a in arguments)
        scores, weights, gamma, mask = rest
        tolerance = float(jnp.finfo(y.dtype).eps)
        if scores.dtype.itemsize < 4 or scores.dtype.kind != "f":  # NumPy has no bfloat16
            scores = scores.astype(np.float32)
        weights = weights.astype(np.float32) if tolerance > float(np.finfo(np.float32).eps) else weights
        gap = numpy_frontend.duality_gap(known.with_theta(theta), scores, weights, dim, gamma, mask)
        return jnp.asarray(gap, x.dtype)
    rows = prepare("duality_gap(...)", x, dim, gamma, mask, known.theta, known.bounds)
    weights = prepare("duality_gap(...): y", y, dim, 1.0, None).x
    tolerance = float(jnp.finfo(y.dtype).eps) ** 0.5
    at = known.with_theta(rows.theta)
    keep = jnp.broadcast_to(rows.kept, rows.x.shape)
    return duality.gap(at, rows.x, weights, keep, rows.gamma, tolerance).astype(rows.dtype)


def fenchel_young(
    omega: Regularizer,
    x: Array,
    target: Any,
    dim: int,
    gamma: Any,
    mask: Any,
    call: str = "fenchel_young_loss(...)",
) -> Array:
    """max_Omega(x) + gamma Omega(q) - <x, q>; `target` holds class indices or, if floating, distributions q."""
    exact, rows = _lay_out(call, omega, x, dim, gamma, mask)
    q = _target_rows(call, target, x, rows)
    kept, y = rows.kept, _argmax_rows(exact, rows)
    at = exact.with_theta(rows.theta)
    centred, _ = _centred(rows)
    entropy = (at.value(q, kept) - at.value(y, kept))[..., None]
    loss = (centred * (y - q)).sum(-1, keepdims=True) + rows.gamma * entropy
    # Rounding may make the loss negative, and weight on a deleted position makes it infinite; gradients stay finite.
    forbidden = (~kept & (q != 0)).any(-1, keepdims=True)
    value = jnp.where(forbidden, jnp.inf, jnp.maximum(loss, 0))
    loss = (
        jnp.where(forbidden, jnp.inf, 0) + loss + jax.lax.stop_gradient(jnp.where(forbidden, 0, value - loss))
    )
    return loss[..., 0].astype(rows.dtype)


def _target_rows(call: str, target: Any, x: Array, rows: Rows) -> Array:
    """The target as one distribution per row."""
    d = rows.x.shape[-1]
    if check_target(call, target, x, rows.dim) == "classes":
        if not is_traced(target) and target.size:
            check_classes(call, int(target.min()), int(target.max()), d)
        return jax.nn.one_hot(target, d, dtype=rows.x.dtype)
    q = jnp.moveaxis(jnp.asarray(target), rows.dim, -1)
    if not is_traced(q):
        off = abs(q.sum(-1) - 1) > float(jnp.finfo(q.dtype).eps) ** 0.5
        check_distribution(call, bool((q < 0).any() or off.any()))
    return q.astype(rows.x.dtype)


def prox(kernel: str, x: Array, dim: int, lam: Any, bounds: Bounds) -> Array:
    """A proximal operator without projection onto the simplex, such as `prox_tv1d`, along `dim`."""
    rows = prepare(f"{kernel}(...)", x, dim, 1.0, None, lam, bounds)
    number, theta = (rows.theta, None) if isinstance(rows.theta, int | float) else (None, rows.theta)
    return rows.restore(_compiled((kernel,), number, rows.x, None, theta, None))


def prox_owl(x: Array, weights: Array, dim: int) -> Array:
    """Not implemented on JAX arrays."""
    raise _missing("prox_owl(x, weights)")


def project_capped_simplex(x: Array, dim: int, upper: Any, total: Any) -> Array:
    """Not implemented on JAX arrays."""
    raise _missing("project_capped_simplex(x)")


def _missing(call: str) -> TypeError:
    return TypeError(
        f"`{call}` needs a NumPy array or a torch tensor. Got a JAX array: use `numpy.asarray(...)`."
    )
