"""Every mapping's Jacobian product for one row, computed from its weights, which are finite, without masks."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from regmax.kernels.reference.integers import on_one_scale, rounded
from regmax.kernels.reference.mappings import Row

Labels = NDArray[np.intp]


def _softmax(y: Row, v: Row, _: float) -> Row:
    weights, direction = y.astype(np.longdouble), v.astype(np.longdouble)
    return (weights * (direction - weights @ direction)).astype(np.float64)


def _sparsemax(y: Row, v: Row, _: float) -> Row:
    return _centred_means(v, np.arange(len(v)), y > 0)


def _fusedmax(y: Row, v: Row, lam: float) -> Row:
    return _centred_means(v, np.arange(len(v)) if lam == 0 else _segments(y), y > 0)


def _oscarmax(y: Row, v: Row, lam: float) -> Row:
    return _centred_means(v, np.arange(len(v)) if lam == 0 else _clusters(y), y > 0)


def _sqpnormmax(y: Row, v: Row, p: float) -> Row:
    """J = M - M1 1'M / 1'M1, M the inverse of the Hessian of |y|_p^2 / 2 on the support.

    By Sherman and Morrison, M = [ N^(p-2) diag(y^(2-p)) - (2 - p) N^(-2) y y' ] / (p - 1), N = |y|_p.
    """
    product = np.zeros_like(y)
    support = y > 0
    if not support.any():
        return product
    weights, power = y[support].astype(np.longdouble), np.longdouble(p)
    norm = (weights**power).sum() ** (1 / power)

    def inverse_hessian(u: NDArray[np.longdouble]) -> NDArray[np.longdouble]:
        straight = norm ** (power - 2) * weights ** (2 - power) * u
        return (straight - (2 - power) * norm**-2 * weights * (weights @ u)) / (power - 1)

    ones, straight = inverse_hessian(np.ones_like(weights)), inverse_hessian(v[support].astype(np.longdouble))
    product[support] = straight - ones * (straight.sum() / ones.sum())
    return product


def _entmax(y: Row, v: Row, alpha: float) -> Row:
    """J = diag(s) - s s' / sum s, s = y^(2 - alpha) on the support."""
    product = np.zeros_like(y)
    support = y > 0
    if not support.any():
        return product
    s, direction = (
        y[support].astype(np.longdouble) ** (2 - np.longdouble(alpha)),
        v[support].astype(np.longdouble),
    )
    product[support] = s * (direction - (s @ direction) / s.sum())
    return product


def _prox_tv1d(z: Row, v: Row, lam: float) -> Row:
    return v if lam == 0 else _means(v, _segments(z))


def _prox_oscar(z: Row, v: Row, lam: float) -> Row:
    return prox_owl(z, v, lam * np.arange(len(z) - 1, -1, -1, dtype=np.float64))


def prox_owl(z: Row, v: Row, weights: Row) -> Row:
    """Positions with equal |z| move together, by the mean of their outward moves; zeros do not move.

    But if the weights at a group's ranks are all equal, the penalty is separable there and its positions move
    independently, as do zeros of weight zero.
    """
    ranked = np.empty_like(z)  # the weight of each position
    ranked[np.argsort(-np.abs(z), kind="stable")] = weights
    groups = _clusters(np.abs(z))
    sign = np.sign(z)
    product = sign * _means(sign * v, groups)
    for group in range(groups.max(initial=-1) + 1):
        members = groups == group
        separable = np.ptp(ranked[members]) == 0
        if separable and (sign[members].all() or not ranked[members].any()):
            product[members] = v[members]
    return product


JACOBIAN_PRODUCT: dict[str, Callable[[Row, Row, float], Row]] = {
    "softmax": _softmax,
    "sparsemax": _sparsemax,
    "fusedmax": _fusedmax,
    "oscarmax": _oscarmax,
    "sqpnormmax": _sqpnormmax,
    "entmax": _entmax,
    "prox_tv1d": _prox_tv1d,
    "prox_oscar": _prox_oscar,
}


def _segments(z: Row) -> Labels:
    """Label the segments: maximal sequences of equal neighbours."""
    return np.cumsum(np.r_[False, z[1:] != z[:-1]])


def _clusters(z: Row) -> Labels:
    """Label the clusters: sets of equal values."""
    return np.unique(z, return_inverse=True)[1]


def _means(v: Row, groups: Labels) -> Row:
    """Every position's group mean, rounded once."""
    if not np.isfinite(v).all():
        return (np.bincount(groups, v) / np.bincount(groups))[groups]
    totals, counts, unit = _totals(v, groups)
    return np.array([rounded(total, count * unit) for total, count in zip(totals, counts, strict=True)])[
        groups
    ]


def _centred_means(v: Row, groups: Labels, support: NDArray[np.bool_]) -> Row:
    """The groups' means less the mean over the support, rounded once; zero off the support."""
    product = np.zeros_like(v)
    members = v[support]
    if not np.isfinite(members).all():
        product[support] = np.nan
    elif len(members):
        labels = np.unique(groups[support], return_inverse=True)[1]
        totals, counts, unit = _totals(members, labels)
        everything, size = sum(totals), len(members)
        moves = [
            rounded(total * size - everything * count, count * size * unit)
            for total, count in zip(totals, counts, strict=True)
        ]
        product[support] = np.array(moves)[labels]
    return product


def _totals(v: Row, groups: Labels) -> tuple[list[int], list[int], int]:
    """The groups' sums as integers, their sizes, and 1 on the integers' scale."""
    *numbers, unit = on_one_scale([*(number.as_integer_ratio() for number in v.tolist()), (1, 1)])
    totals = [0] * (int(groups.max(initial=-1)) + 1)
    for group, number in zip(groups.tolist(), numbers, strict=True):
        totals[group] += number
    return totals, np.bincount(groups).tolist(), unit
