"""The mappings and their Jacobian products, one row at a time in NumPy: the specification.

The specification is the exact result for the given numbers. Scores, gamma and theta are binary fractions, their problem
has one solution in the real numbers, and the weights are that solution, rounded. Hence the support is where the
solution is positive, segments and clusters are where it is equal, equal scores get equal weights, and
there are no tolerances: `fusedmax` fuses [.1, 0, .2] at lam = .1, because .2 is twice .1 in binary too. Weights that
differ in the real numbers may round to the same number, but never change their order.

The piecewise linear mappings are solved in integers (`integers`) and rounded once. softmax, sqpnormmax and entmax are
computed in long double; a score within 8 units in its last place of the threshold of the last two counts as at the
threshold and has no weight. `docs/derivations/exactness.md` lists the signs that a floating-point implementation must
decide exactly.

Deleted positions (`keep` False, or a score of -inf) are removed from the row first and returned as exact
zeros, so the functions on rows get finite, non-empty rows without masks.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regmax.kernels.reference import jacobians, mappings

Array = NDArray[Any]
Strength = ArrayLike | None

__all__ = ["argmax", "jacobian_product", "prox_owl", "prox_owl_jacobian_product"]


def argmax(
    kernel: str, x: Array, keep: Array | None = None, theta: Strength = None, *, gamma: ArrayLike = 1.0
) -> Array:
    """Return the mapping `kernel` of every row of `x` / `gamma`, (n, d), in the dtype of `x`.

    A row with NaN or +inf among its kept scores is NaN where `keep` is True; a row without kept scores is zero.

    >>> argmax("fusedmax", np.array([[1.0, 0.9, 0.6]]), theta=0.1).round(3)
    array([[0.4, 0.4, 0.2]])
    >>> argmax("sparsemax", np.array([[1.0, -np.inf, 0.5]]))
    array([[0.75, 0.  , 0.25]])
    """
    x = np.asarray(x)
    allowed = np.ones(x.shape, bool) if keep is None else np.broadcast_to(keep, x.shape)
    result = np.zeros(x.shape)
    strengths, scales = _per_row(theta, len(x)), _per_row(gamma, len(x))
    for scores, allow, out, strength, scale in zip(x, allowed, result, strengths, scales, strict=True):
        kept = allow & (scores != -np.inf)
        if not np.all(scores[kept] < np.inf):  # NaN compares False too
            out[allow] = np.nan
        elif kept.any():
            out[kept] = mappings.ARGMAX[kernel](scores[kept].astype(np.float64), strength, scale)
    return _saturated(result, x.dtype)


def jacobian_product(
    kernel: str,
    y: Array,
    v: Array,
    keep: Array | None = None,
    theta: Strength = None,
    *,
    gamma: ArrayLike = 1.0,
) -> Array:
    """Return J v for every row, with J the Jacobian of `kernel` at the scores whose result is `y`.

    J is computed from `y`: the support is where y > 0, and with theta > 0 equal neighbours belong to one group.
    A row of `y` with NaN gives NaN where `keep` is True.

    >>> jacobian_product("fusedmax", np.array([[0.4, 0.4, 0.2]]), np.array([[3.0, 1.0, 5.0]]), theta=0.1)
    array([[-1., -1.,  2.]])
    """
    y, v = np.asarray(y), np.asarray(v)
    allowed = np.ones(y.shape, bool) if keep is None else np.broadcast_to(keep, y.shape)
    result = np.zeros(y.shape)
    strengths, scales = _per_row(theta, len(y)), _per_row(gamma, len(y))
    for weights, direction, kept, out, strength, scale in zip(
        y, v, allowed, result, strengths, scales, strict=True
    ):
        if np.isnan(weights[kept]).any():
            out[kept] = np.nan
        elif kept.any():
            product = jacobians.JACOBIAN_PRODUCT[kernel]
            moves = product(weights[kept].astype(np.float64), direction[kept].astype(np.float64), strength)
            out[kept] = moves / scale
    return result.astype(y.dtype)


def prox_owl(x: Array, weights: Array) -> Array:
    """Return argmin_z 1/2 |z - x|^2 + sum_k weights_k |z|_(k), |z| sorted decreasing, for every row of `x`.

    `weights` holds d nonincreasing, nonnegative numbers. A row that is not finite gives NaN.

    >>> prox_owl(np.array([[3.0, -2.8, 0.5]]), np.array([1.0, 0.5, 0.0])).round(3)
    array([[ 2.15, -2.15,  0.5 ]])
    """
    x, weights = np.asarray(x), np.asarray(weights, np.float64)
    result = np.full(x.shape, np.nan)
    for scores, out in zip(x, result, strict=True):
        if np.isfinite(scores).all():
            out[:] = mappings.prox_owl(scores.astype(np.float64), weights)
    return result.astype(x.dtype)


def prox_owl_jacobian_product(z: Array, v: Array, weights: Array) -> Array:
    """Return J v for every row, with J the Jacobian of `prox_owl` at the scores whose result is `z`.

    >>> z, weights = np.array([[2.15, -2.15, 0.5]]), np.array([1.0, 0.5, 0.0])
    >>> prox_owl_jacobian_product(z, np.array([[1.0, 3.0, 7.0]]), weights)
    array([[-1.,  1.,  7.]])
    """
    z, v, weights = np.asarray(z), np.asarray(v), np.asarray(weights, np.float64)
    result = np.full(z.shape, np.nan)
    for pooled, direction, out in zip(z, v, result, strict=True):
        if not np.isnan(pooled).any():
            out[:] = jacobians.prox_owl(pooled.astype(np.float64), direction.astype(np.float64), weights)
    return result.astype(z.dtype)


def _saturated(result: Array, dtype: Any) -> Array:
    """`result` in `dtype`: values of a proximal operator that exceed its range become its largest finite number."""
    most = np.finfo(dtype).max
    return np.clip(result, -most, most).astype(dtype)


def _per_row(theta: Strength, n: int) -> list[float]:
    numbers = np.asarray(0.0 if theta is None else theta, np.float64).reshape(-1)
    return np.broadcast_to(numbers, n).tolist()
