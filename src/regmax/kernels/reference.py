"""The mappings and their Jacobian products, one row at a time in NumPy: the specification.

Everything is written for reading: plain algorithms in float64, without screening or blocking. The other
implementations are tested against this one, and this one against convex solvers and finite differences.

Deleted positions (`keep` False, or a score of -inf) are taken out of the row before anything else happens and come
back as exact zeros; so every row function below sees a finite, non-empty row and knows nothing about masks.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Row = NDArray[np.float64]
Array = NDArray[Any]
Strength = ArrayLike | None


def argmax(
    kernel: str, x: Array, keep: Array | None = None, theta: Strength = None, *, gamma: ArrayLike = 1.0
) -> Array:
    """Return the mapping `kernel` of every row of `x / gamma` (n, d), in the dtype of `x`.

    A row with NaN or +inf among its kept scores is NaN where `keep` is True; a row without kept scores is zero.

    >>> argmax("fusedmax", np.array([[1.0, 0.9, 0.6]]), theta=0.1).round(3)
    array([[0.4, 0.4, 0.2]])
    >>> argmax("sparsemax", np.array([[1.0, -np.inf, 0.5]]))
    array([[0.75, 0.  , 0.25]])
    """
    x = np.asarray(x)
    allowed = np.ones(x.shape, bool) if keep is None else np.broadcast_to(keep, x.shape)
    result = np.zeros(x.shape)
    strengths, gammas = _per_row(theta, len(x)), _per_row(gamma, len(x))
    for scores, allow, out, strength, divisor in zip(x, allowed, result, strengths, gammas, strict=True):
        kept = allow & (scores != -np.inf)
        if not np.all(scores[kept] < np.inf):  # NaN compares False too
            out[allow] = np.nan
        elif kept.any():
            row = _divided(kernel, scores[kept].astype(np.float64), divisor)
            out[kept] = _ARGMAX[kernel](row, strength)
    return result.astype(x.dtype)


def jacobian_product(
    kernel: str,
    y: Array,
    v: Array,
    keep: Array | None = None,
    theta: Strength = None,
    *,
    gamma: ArrayLike = 1.0,
) -> Array:
    """Return J v / gamma for every row, J being the Jacobian of `kernel` at the scores whose result is `y`.

    J is read off `y`: the support is where y > 0, and with theta > 0 equal neighbours belong to one group.
    A row of `y` with NaN gives NaN where `keep` is True.

    >>> jacobian_product("fusedmax", np.array([[0.4, 0.4, 0.2]]), np.array([[3.0, 1.0, 5.0]]), theta=0.1)
    array([[-1., -1.,  2.]])
    """
    y, v = np.asarray(y), np.asarray(v)
    allowed = np.ones(y.shape, bool) if keep is None else np.broadcast_to(keep, y.shape)
    result = np.zeros(y.shape)
    for weights, direction, kept, out, strength in zip(
        y, v, allowed, result, _per_row(theta, len(y)), strict=True
    ):
        if np.isnan(weights[kept]).any():
            out[kept] = np.nan
        elif kept.any():
            product = _JACOBIAN_PRODUCT[kernel]
            out[kept] = product(
                weights[kept].astype(np.float64), direction[kept].astype(np.float64), strength
            )
    return (result / _per_row(gamma, len(y))[:, None]).astype(y.dtype)


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
            out[:] = _prox_owl(scores.astype(np.float64), weights)
    return result.astype(x.dtype)


def prox_owl_jacobian_product(z: Array, v: Array, weights: Array) -> Array:
    """Return J v for every row, J being the Jacobian of `prox_owl` at the scores whose result is `z`.

    >>> z, weights = np.array([[2.15, -2.15, 0.5]]), np.array([1.0, 0.5, 0.0])
    >>> prox_owl_jacobian_product(z, np.array([[1.0, 3.0, 7.0]]), weights)
    array([[-1.,  1.,  7.]])
    """
    z, v, weights = np.asarray(z), np.asarray(v), np.asarray(weights, np.float64)
    result = np.full(z.shape, np.nan)
    for pooled, direction, out in zip(z, v, result, strict=True):
        if not np.isnan(pooled).any():
            out[:] = _prox_owl_product(pooled.astype(np.float64), direction.astype(np.float64), weights)
    return result.astype(z.dtype)


def _per_row(theta: Strength, n: int) -> Row:
    return np.broadcast_to(np.asarray(np.nan if theta is None else theta, np.float64).reshape(-1), n)


def _divided(kernel: str, x: Row, gamma: float) -> Row:
    """x / gamma, by which no finite score becomes infinite.

    A mapping onto the simplex does not change if a constant is added to its scores: theirs are divided relative to
    the largest one. A proximal operator's are not.
    """
    if gamma == 1:
        return x
    origin = 0.0 if kernel.startswith("prox") else x.max()
    most = np.finfo(np.float64).max
    with np.errstate(over="ignore"):
        return np.clip((x - origin) / gamma, -most, most)


# --- The mappings -----------------------------------------------------------------------------------------------


def _softmax(x: Row) -> Row:
    exponentials = np.exp(x - x.max())
    return exponentials / exponentials.sum()


def _project_simplex(x: Row) -> Row:
    """The sorted scores that exceed their own threshold are the support (Held, Wolfe and Crowder, 1974)."""
    x = x - x.max()
    descending = np.sort(x)[::-1]
    thresholds = (np.cumsum(descending) - 1) / np.arange(1, len(x) + 1)
    tau = thresholds[descending > thresholds][-1]
    return np.maximum(x - tau, 0)


def _fusedmax(x: Row, lam: float) -> Row:
    return _project_simplex(_prox_tv1d(x - x.max(), lam))


def _oscarmax(x: Row, lam: float) -> Row:
    """On the simplex the OSCAR penalty is sum_k lam (d - k) y_(k): linear in the order of the signed scores."""
    order = np.argsort(-x, kind="stable")
    z = np.empty_like(x)
    z[order] = _isotonic_decreasing(x[order] - x.max() - _oscar_weights(len(x), lam))
    return _project_simplex(z)


def _sqpnormmax(x: Row, p: float) -> Row:
    """Solve one scalar equation by bisection, in a form whose powers can neither overflow nor vanish.

    With q = p / (p - 1), the solution is y = |z|_q^(2-q) z^(q-1), z = (x - tau)_+, and tau makes it sum to one.
    Put m = max(x) - tau, r = z / m in [0, 1] and S_k = sum r^k in [1, d]: then y = r^(q-1) / S_(q-1) and
    m S_(q-1) S_q^(2/q - 1) = 1. The left side increases with m, is at least 1 at m = 1 and, by Hoelder's
    inequality, at most m d^(2/q).
    """
    q = p / (p - 1)
    gap = x.max() - x

    def powers(
        m: float,
    ) -> tuple[Row, Row]:  # r^(q-1) and r^q; log1p keeps large exponents exact for p near 1
        inside = gap < m
        share = np.where(inside, gap / m, 0)
        power = inside * np.exp((q - 1) * np.log1p(-share))
        return power, power * (1 - share)

    low, high = 0.5 * len(x) ** (-2 / q), 1.0
    while low < (m := (low + high) / 2) < high:
        power, next_power = powers(m)
        if m * power.sum() * next_power.sum() ** (2 / q - 1) < 1:
            low = m
        else:
            high = m
    y, _ = powers(high)
    return y / y.sum()


def _prox_oscar(x: Row, lam: float) -> Row:
    return _prox_owl(x, _oscar_weights(len(x), lam))


_ARGMAX: dict[str, Callable[[Row, float], Row]] = {
    "softmax": lambda x, _: _softmax(x),
    "sparsemax": lambda x, _: _project_simplex(x),
    "fusedmax": _fusedmax,
    "oscarmax": _oscarmax,
    "sqpnormmax": _sqpnormmax,
    "prox_tv1d": lambda x, lam: _prox_tv1d(x, lam),
    "prox_oscar": _prox_oscar,
}


# --- Pooling ----------------------------------------------------------------------------------------------------


def _oscar_weights(d: int, lam: float) -> Row:
    return lam * np.arange(d - 1, -1, -1, dtype=np.float64)


def _isotonic_decreasing(x: Row) -> Row:
    """The nearest decreasing sequence, by pooling adjacent violators."""
    pools: list[tuple[float, int]] = []
    for score in x:
        total, count = score, 1
        while pools and pools[-1][0] * count <= total * pools[-1][1]:  # the pool before has no larger mean
            before, size = pools.pop()
            total, count = total + before, count + size
        pools.append((total, count))
    totals, counts = np.array(pools).T
    return np.repeat(totals / counts, counts.astype(int))


def _prox_owl(x: Row, weights: Row) -> Row:
    order = np.argsort(-np.abs(x), kind="stable")
    z = np.empty_like(x)
    z[order] = np.maximum(_isotonic_decreasing(np.abs(x)[order] - weights), 0)
    return np.where(z > 0, np.copysign(z, x), 0.0)  # no negative zeros


def _prox_tv1d(x: Row, lam: float) -> Row:
    """argmin_z 1/2 |z - x|^2 + lam sum |z_i+1 - z_i|, by Johnson's dynamic programme (2013).

    f_i(b) is the least cost of the first i values when the i-th is b. Its derivative increases and is piecewise
    linear; the next one is clip(f_i', -lam, lam) + b - x_i+1. It is kept as its outermost pieces (slope, intercept)
    and the knots between them (position, change of slope, change of intercept). The clip is active below lower[i]
    and above upper[i], hence z_i = clip(z_i+1, lower[i], upper[i]) on the way back.
    """
    d = len(x)
    knots: deque[tuple[float, float, float]] = deque()
    left = right = (1.0, -x[0])
    lower, upper = np.empty(d), np.empty(d)
    for i in range(d - 1):
        lower[i], slope, intercept = _crossing_from_left(knots, *left, -lam)
        upper[i], slope_right, intercept_right = _crossing_from_right(knots, *right, lam)
        knots.appendleft((lower[i], slope, intercept + lam))
        knots.append((upper[i], -slope_right, lam - intercept_right))
        left, right = (1.0, -lam - x[i + 1]), (1.0, lam - x[i + 1])
    z = np.empty(d)
    z[-1], _, _ = _crossing_from_left(knots, *left, 0.0)
    for i in range(d - 2, -1, -1):
        z[i] = min(max(z[i + 1], lower[i]), upper[i])
    return _recomputed_groups(x, z, lam)


def _crossing_from_left(
    knots: deque[tuple[float, float, float]], slope: float, intercept: float, level: float
) -> tuple[float, float, float]:
    """Drop the knots below `level`; return where the derivative crosses it and the piece that does."""
    while knots and slope * knots[0][0] + intercept <= level:
        _, more_slope, more_intercept = knots.popleft()
        slope, intercept = slope + more_slope, intercept + more_intercept
    return (level - intercept) / slope, slope, intercept


def _crossing_from_right(
    knots: deque[tuple[float, float, float]], slope: float, intercept: float, level: float
) -> tuple[float, float, float]:
    while knots and slope * knots[-1][0] + intercept >= level:
        _, more_slope, more_intercept = knots.pop()
        slope, intercept = slope - more_slope, intercept - more_intercept
    return (level - intercept) / slope, slope, intercept


def _recomputed_groups(x: Row, z: Row, lam: float) -> Row:
    """Every group's value again from its own scores: the intercepts above add up the whole row's rounding.

    A group G between a and b is worth (sum_G x + lam s_a + lam s_b) / |G|, s the sign of the step up to the neighbour.
    """
    steps = np.sign(np.diff(z))
    starts = np.flatnonzero(np.r_[True, steps != 0])
    counts = np.diff(np.r_[starts, len(z)])
    pull = lam * (np.r_[steps[steps != 0], 0] - np.r_[0, steps[steps != 0]])
    return np.repeat((np.add.reduceat(x, starts) + pull) / counts, counts)


# --- Jacobian products ------------------------------------------------------------------------------------------


def _softmax_product(y: Row, v: Row) -> Row:
    return y * (v - y @ v)


def _sparsemax_product(y: Row, v: Row) -> Row:
    support = y > 0  # empty where every kept score was -inf
    return np.where(support, v - v[support].sum() / max(support.sum(), 1), 0)


def _fusedmax_product(y: Row, v: Row, lam: float) -> Row:
    return _sparsemax_product(y, v if lam == 0 else _means(v, _runs(y)))


def _oscarmax_product(y: Row, v: Row, lam: float) -> Row:
    return _sparsemax_product(y, v if lam == 0 else _means(v, np.unique(y, return_inverse=True)[1]))


def _sqpnormmax_product(y: Row, v: Row, p: float) -> Row:
    """J = M - M1 1'M / 1'M1, M the inverse of the Hessian of |y|_p^2 / 2 on the support.

    By Sherman and Morrison, M = [ N^(p-2) diag(y^(2-p)) - (2 - p) N^(-2) y y' ] / (p - 1), N = |y|_p.
    """
    support = y > 0
    if not support.any():
        return np.zeros_like(y)
    y_s = y[support]
    norm = (y_s**p).sum() ** (1 / p)

    def inverse_hessian(u: Row) -> Row:
        return (norm ** (p - 2) * y_s ** (2 - p) * u - (2 - p) * norm**-2 * y_s * (y_s @ u)) / (p - 1)

    ones, straight = inverse_hessian(np.ones_like(y_s)), inverse_hessian(v[support])
    product = np.zeros_like(y)
    product[support] = straight - ones * (straight.sum() / ones.sum())
    return product


def _prox_tv1d_product(z: Row, v: Row, lam: float) -> Row:
    return v if lam == 0 else _means(v, _runs(z))


def _prox_oscar_product(z: Row, v: Row, lam: float) -> Row:
    return _prox_owl_product(z, v, _oscar_weights(len(z), lam))


def _prox_owl_product(z: Row, v: Row, weights: Row) -> Row:
    """Equal |z| move together, by the mean of their own moves outward; zeros stay.

    But where the weights at a group's ranks are all equal, the penalty is separable there: each moves alone, and so
    do zeros of weight zero.
    """
    ranked = np.empty_like(z)  # every position's own weight
    ranked[np.argsort(-np.abs(z), kind="stable")] = weights
    groups = np.unique(np.abs(z), return_inverse=True)[1]
    product = np.empty_like(v)
    for group in range(groups.max(initial=-1) + 1):
        members = groups == group
        separable = np.ptp(ranked[members]) == 0
        sign = np.sign(z[members])
        if separable and (sign.all() or not ranked[members].any()):
            product[members] = v[members]
        else:
            product[members] = sign * (sign * v[members]).mean()
    return product


_JACOBIAN_PRODUCT: dict[str, Callable[[Row, Row, float], Row]] = {
    "softmax": lambda y, v, _: _softmax_product(y, v),
    "sparsemax": lambda y, v, _: _sparsemax_product(y, v),
    "fusedmax": _fusedmax_product,
    "oscarmax": _oscarmax_product,
    "sqpnormmax": _sqpnormmax_product,
    "prox_tv1d": _prox_tv1d_product,
    "prox_oscar": _prox_oscar_product,
}


def _runs(z: Row) -> NDArray[np.intp]:
    """Label the runs of equal neighbours."""
    return np.cumsum(np.r_[False, z[1:] != z[:-1]])


def _means(v: Row, groups: NDArray[np.intp]) -> Row:
    return (np.bincount(groups, v) / np.bincount(groups))[groups]
