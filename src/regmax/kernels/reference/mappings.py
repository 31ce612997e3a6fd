"""Every mapping of one row: finite scores, at least one of them, no masks.

With x the scores, the piecewise linear mappings solve, in integers, the problem for gamma y: pooling with strength
gamma lam, then projection onto the simplex of size gamma. The others are computed in long double and rounded.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regmax.kernels.reference.integers import (
    Pool,
    isotonic_decreasing,
    on_one_scale,
    project_simplex,
    rounded,
    total_variation,
)

Row = NDArray[np.float64]
LongRow = NDArray[np.longdouble]


class Scaled(NamedTuple):
    """A row in integers, all multiples of the same power of two."""

    x: list[int]
    strength: int  # gamma theta
    gamma: int


def _scaled(x: Row, theta: float, gamma: float) -> Scaled:
    (a, b), (c, d) = float(theta).as_integer_ratio(), float(gamma).as_integer_ratio()
    *scores, strength, unit = on_one_scale(
        [*(s.as_integer_ratio() for s in x.tolist()), (a * c, b * d), (c, d)]
    )
    return Scaled(scores, strength, unit)


def _repeated(values: Sequence[float], pools: Sequence[Pool]) -> Row:
    return np.repeat(np.array(values, np.float64), [count for _, count in pools])


def _means(pools: Sequence[Pool], unit: int) -> Row:
    return _repeated([rounded(total, count * unit) for total, count in pools], pools)


def _softmax(x: Row, _: float, gamma: float) -> Row:
    exponentials = np.exp(_below_maximum(x, gamma))
    return (exponentials / exponentials.sum()).astype(np.float64)


def _sparsemax(x: Row, _: float, gamma: float) -> Row:
    row = _scaled(x, 0.0, gamma)
    return np.array(project_simplex([(score, 1) for score in row.x], row.gamma))


def _fusedmax(x: Row, lam: float, gamma: float) -> Row:
    row = _scaled(x, lam, gamma)
    segments = total_variation(row.x, row.strength)
    return _repeated(project_simplex(segments, row.gamma), segments)


def _oscarmax(x: Row, lam: float, gamma: float) -> Row:
    """On the simplex the OSCAR penalty is sum_k lam (d - k) y_(k): linear in the order of the signed scores."""
    row, order = _scaled(x, lam, gamma), np.argsort(-x, kind="stable")
    clusters = isotonic_decreasing(
        row.x[i] - row.strength * (len(x) - k) for k, i in enumerate(order.tolist(), start=1)
    )
    y = np.empty_like(x)
    y[order] = _repeated(project_simplex(clusters, row.gamma), clusters)
    return y


def _sqpnormmax(x: Row, p: float, gamma: float) -> Row:
    """Solve one scalar equation by bisection, in a form whose powers neither overflow nor underflow.

    With q = p / (p - 1), the solution is y = |z|_q^(2-q) z^(q-1), z = (x / gamma - tau)_+, and tau makes it sum to
    one. Put m = max(x) / gamma - tau, r = z / m in [0, 1] and S_k = sum r^k in [1, d]: then y = r^(q-1) / S_(q-1) and
    m S_(q-1) S_q^(2/q - 1) = 1. The left side increases with m, is at least 1 at m = 1 and, by Hoelder's
    inequality, at most m d^(2/q).
    """
    if p == 2:
        return _sparsemax(x, p, gamma)
    q = np.longdouble(p) / (np.longdouble(p) - 1)
    gap = -_below_maximum(x, gamma)
    gap = gap[gap < 1]  # the only scores that can have weight, since m <= 1

    def powers(m: np.longdouble) -> tuple[LongRow, LongRow]:
        """r^(q-1) and r^q; log1p keeps large exponents exact for p near 1."""
        share = gap / m
        inside = share < 1 - _TIE
        power = np.where(inside, np.exp((q - 1) * np.log1p(-np.where(inside, share, 0))), 0)
        return power, power * (1 - share)

    low, high = np.longdouble(0.5) * np.longdouble(len(x)) ** (-2 / q), np.longdouble(1)
    while low < (m := (low + high) / 2) < high:
        power, next_power = powers(m)
        if m * power.sum() * next_power.sum() ** (2 / q - 1) < 1:
            low = m
        else:
            high = m
    power, _ = powers(high)
    y = np.zeros_like(x)
    y[-_below_maximum(x, gamma) < 1] = power / power.sum()
    return y


def _entmax(x: Row, alpha: float, gamma: float) -> Row:
    """Solve one scalar equation by bisection, in a form that is exact for alpha near 1.

    With a = alpha - 1, y = (a x / gamma - tau)_+^(1/a). Put m = a max(x) / gamma - tau and r = (1 - a gap / m)_+^(1/a),
    gap = max(x) / gamma - x / gamma: then y = r / S with S = sum r in [1, d], and m S^a = 1. The left side increases
    with m, is at least 1 at m = 1 and at most m d^a.
    """
    if alpha in (1, 2):
        return (_softmax if alpha == 1 else _sparsemax)(x, alpha, gamma)
    a, gap = np.longdouble(alpha) - 1, -_below_maximum(x, gamma)
    near = a * gap < 1  # the only scores that can have weight, since m <= 1
    gap = gap[near]

    def ratios(m: np.longdouble) -> LongRow:
        share = a * gap / m
        inside = share < 1 - _TIE
        return np.where(inside, np.exp(np.log1p(-np.where(inside, share, 0)) / a), 0)

    low, high = np.longdouble(0.5) * np.longdouble(len(x)) ** -a, np.longdouble(1)
    while low < (m := (low + high) / 2) < high:
        if np.log(m) + a * np.log(ratios(m).sum()) < 0:
            low = m
        else:
            high = m
    r = ratios(high)
    y = np.zeros_like(x)
    y[near] = r / r.sum()
    return y


# The thresholds of sqpnormmax and entmax are irrational. A score within the root's rounding error counts as equal.
_TIE = 8 * np.finfo(np.longdouble).eps


def _below_maximum(x: Row, gamma: float) -> LongRow:
    extended = x.astype(np.longdouble)
    with np.errstate(over="ignore"):  # a score that overflows to -inf has no weight
        return (extended - extended.max()) / np.longdouble(gamma)


def _prox_tv1d(x: Row, lam: float, gamma: float) -> Row:
    row = _scaled(x, lam, gamma)
    return _means(total_variation(row.x, row.strength), row.gamma)


def _prox_oscar(x: Row, lam: float, gamma: float) -> Row:
    row = _scaled(x, lam, gamma)
    return _shrunk(x, row.x, [row.strength * (len(x) - k) for k in range(1, len(x) + 1)], row.gamma)


def prox_owl(x: Row, weights: Row) -> Row:
    """argmin_z 1/2 |z - x|^2 + sum_k weights_k |z|_(k), |z| sorted decreasing."""
    scaled = on_one_scale([number.as_integer_ratio() for number in [*x.tolist(), *weights.tolist(), 1.0]])
    return _shrunk(x, scaled[: len(x)], scaled[len(x) : -1], scaled[-1])


def _shrunk(x: Row, scores: list[int], weights: list[int], unit: int) -> Row:
    order = np.argsort(-np.abs(x), kind="stable")
    pools = isotonic_decreasing(abs(scores[i]) - w for i, w in zip(order.tolist(), weights, strict=True))
    magnitude = np.empty_like(x)
    magnitude[order] = np.maximum(_means(pools, unit), 0)
    return np.where(magnitude > 0, np.copysign(magnitude, x), 0.0)  # no negative zeros


ARGMAX: dict[str, Callable[[Row, float, Any], Row]] = {
    "softmax": _softmax,
    "sparsemax": _sparsemax,
    "fusedmax": _fusedmax,
    "oscarmax": _oscarmax,
    "sqpnormmax": _sqpnormmax,
    "entmax": _entmax,
    "prox_tv1d": _prox_tv1d,
    "prox_oscar": _prox_oscar,
}
