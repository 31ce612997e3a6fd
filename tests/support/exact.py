"""The exact results, for judging every implementation: rationals for the piecewise linear mappings, else 50 digits.

Nothing here is shared with `src`: total variation is solved by Johnson's dynamic programme and oscarmax by the least
concave majorant, in `fractions`, where the specification pulls a string and pools violators, in integers. Whatever
solves it, `is_total_variation` and `is_isotonic` check a solution against the conditions that characterise it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any

import mpmath

mpmath.mp.dps = 50

RATIONAL = ("sparsemax", "fusedmax", "oscarmax", "prox_tv1d", "prox_oscar")
Numbers = list[Any]  # Fraction or mpmath.mpf


def solve(kernel: str, x: Sequence[float], theta: float | None = None, gamma: float = 1.0) -> Numbers:
    """The mapping of finite scores, as real numbers."""
    if kernel in RATIONAL:
        scores = [Fraction(score) / Fraction(gamma) for score in x]
        return _SOLVE[kernel](scores, Fraction(theta or 0))
    if (kernel, theta) == ("entmax", 1):
        return solve("softmax", x, None, gamma)
    if kernel in ("sqpnormmax", "entmax") and theta == 2:
        return [mpmath.mpf(y.numerator) / y.denominator for y in solve("sparsemax", x, None, gamma)]
    return _SOLVE[kernel]([mpmath.mpf(score) / gamma for score in x], theta)


def product(kernel: str, y: Numbers, v: Sequence[float], theta: float | None = None) -> Numbers:
    """J v at the scores whose exact result is `y`."""
    return _PRODUCT[kernel](y, [type(y[0])(number) for number in v], theta)


def labels(kernel: str, y: Numbers, x: Sequence[float]) -> list[int]:
    """Number the segments (fusedmax, prox_tv1d) or the sets of equal weights, in order of appearance; zeros are 0.

    sqpnormmax's and softmax's weights are equal if and only if the scores are, or the weights zero.
    """
    if kernel in ("fusedmax", "prox_tv1d"):
        changes = [a != b for a, b in pairwise(y)]
        keys: list[Any] = list(accumulate(changes, initial=0))
    elif kernel in RATIONAL:
        keys = list(y)
    else:
        keys = list(x)
    numbers: dict[Any, int] = {}
    simplex = not kernel.startswith("prox")
    for key, weight in zip(keys, y, strict=True):
        if weight != 0 or not simplex:
            numbers.setdefault(key, len(numbers) + 1)
    return [numbers.get(key, 0) if weight or not simplex else 0 for key, weight in zip(keys, y, strict=True)]


# --- Simplex ----------------------------------------------------------------------------------------------------


def project(z: Numbers) -> Numbers:
    """The projection on the simplex: the longest sorted prefix that exceeds its own threshold."""
    total, tau = Fraction(0), Fraction(0)
    for count, score in enumerate(sorted(z, reverse=True), start=1):
        total += score
        if score * count > total - 1:
            tau = (total - 1) / count
    return [max(score - tau, Fraction(0)) for score in z]


# --- Total variation --------------------------------------------------------------------------------------------


def total_variation(x: Numbers, lam: Fraction) -> Numbers:
    """argmin_z 1/2 |z - x|^2 + lam sum |z_i+1 - z_i| by Johnson's dynamic programme (2013).

    The derivative of the least cost of the first i values, as a function of the i-th, is piecewise linear: its
    outermost pieces (slope, intercept) and the knots between them. It is clipped to [-lam, lam] at each step.
    """
    knots: deque[tuple[Fraction, Fraction, Fraction]] = deque()
    left = right = (Fraction(1), -x[0])
    limits = []
    for score in x[1:]:
        low, slope, intercept = _from_left(knots, *left, -lam)
        high, slope_right, intercept_right = _from_right(knots, *right, lam)
        knots.appendleft((low, slope, intercept + lam))
        knots.append((high, -slope_right, lam - intercept_right))
        left, right = (Fraction(1), -lam - score), (Fraction(1), lam - score)
        limits.append((low, high))
    z = [_from_left(knots, *left, Fraction(0))[0]]
    for low, high in reversed(limits):
        z.append(min(max(z[-1], low), high))
    return z[::-1]


def _from_left(knots: Any, slope: Any, intercept: Any, level: Any) -> tuple[Any, Any, Any]:
    while knots and slope * knots[0][0] + intercept <= level:
        _, more_slope, more_intercept = knots.popleft()
        slope, intercept = slope + more_slope, intercept + more_intercept
    return (level - intercept) / slope, slope, intercept


def _from_right(knots: Any, slope: Any, intercept: Any, level: Any) -> tuple[Any, Any, Any]:
    while knots and slope * knots[-1][0] + intercept >= level:
        _, more_slope, more_intercept = knots.pop()
        slope, intercept = slope - more_slope, intercept - more_intercept
    return (level - intercept) / slope, slope, intercept


def is_total_variation(x: Numbers, lam: Fraction, z: Numbers) -> bool:
    """Whether forces of at most lam between neighbours, and of exactly lam across steps, take x to z."""
    force = list(accumulate(a - b for a, b in zip(x, z, strict=True)))
    if force[-1] != 0 or any(abs(f) > lam for f in force):
        return False
    return all(a == b or f == (lam if a > b else -lam) for f, (a, b) in zip(force, pairwise(z), strict=False))


# --- Isotonic regression ----------------------------------------------------------------------------------------


def decreasing(x: Numbers) -> Numbers:
    """The nearest decreasing sequence: the slopes of the least concave majorant of the cumulative sums."""
    hull: list[tuple[int, Fraction]] = []
    for point in enumerate(accumulate(x, initial=Fraction(0))):
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], point):
            hull.pop()
        hull.append(point)
    return [_slope(a, b) for a, b in pairwise(hull) for _ in range(b[0] - a[0])]


def _slope(a: tuple[int, Fraction], b: tuple[int, Fraction]) -> Fraction:
    return (b[1] - a[1]) / (b[0] - a[0])


def is_isotonic(x: Numbers, z: Numbers) -> bool:
    """Whether z decreases, and x reaches it by moving mass to the left within equal values."""
    moved = list(accumulate(b - a for a, b in zip(x, z, strict=True)))
    if moved[-1] != 0 or any(m < 0 for m in moved):
        return False
    return all(a >= b and (a == b or m == 0) for m, (a, b) in zip(moved, pairwise(z), strict=False))


def _in_order(keys: Numbers, solve_sorted: Callable[[Numbers], Numbers]) -> Numbers:
    """Apply a function to the numbers sorted from large to small, and put its results where they came from."""
    order = sorted(range(len(keys)), key=lambda i: keys[i], reverse=True)
    z = dict(zip(order, solve_sorted([keys[i] for i in order]), strict=True))
    return [z[i] for i in range(len(keys))]


def _less_oscar(x: Numbers, lam: Fraction) -> Numbers:
    return [score - lam * (len(x) - k) for k, score in enumerate(x, start=1)]


def _cluster(x: Numbers, lam: Fraction) -> Numbers:
    return _in_order(x, lambda s: decreasing(_less_oscar(s, lam)))


def _prox_oscar(x: Numbers, lam: Fraction) -> Numbers:
    z = _in_order([abs(score) for score in x], lambda s: decreasing(_less_oscar(s, lam)))
    return [max(value, Fraction(0)) * (1 if score >= 0 else -1) for value, score in zip(z, x, strict=True)]


# --- 50 digits --------------------------------------------------------------------------------------------------


def _softmax(x: Numbers, _: Any) -> Numbers:
    exponentials = [mpmath.exp(score - max(x)) for score in x]
    return [e / mpmath.fsum(exponentials) for e in exponentials]


def _sqpnormmax(x: Numbers, p: float | None) -> Numbers:
    """y = |z|_q^(2-q) z^(q-1), z = (x - tau)_+; tau by a bracketed secant method. Within 1e-40 of tau is at tau."""
    q = mpmath.mpf(p) / (mpmath.mpf(p) - 1)
    top = max(x)
    gaps = {score: top - score for score in set(x)}
    counts = {score: x.count(score) for score in gaps}

    def weights(m: Any) -> dict[Any, Any]:
        z = {score: m - gap for score, gap in gaps.items() if m - gap > mpmath.mpf("1e-40")}
        norm = mpmath.fsum(counts[s] * v**q for s, v in z.items()) ** (1 / q)
        return {s: norm * (v / norm) ** (q - 1) for s, v in z.items()}

    def excess(m: Any) -> Any:
        return mpmath.fsum(counts[s] * w for s, w in weights(m).items()) - 1

    least = mpmath.mpf(len(x)) ** (-2 / q) / 2
    m = mpmath.findroot(
        excess, (least, mpmath.mpf(1)), solver="anderson", tol=1e-80, maxsteps=200, verify=False
    )
    if abs(excess(m)) > mpmath.mpf("1e-45") * q:
        raise ArithmeticError(f"The threshold was not found to 45 digits: {x}, p = {p}")
    y = weights(m)
    return [y.get(score, mpmath.mpf(0)) for score in x]


def _entmax(x: Numbers, alpha: float | None) -> Numbers:
    """y = (z - tau)_+^(1/a), z = a x, a = alpha - 1; tau by a bracketed secant method.

    Within 1e-40 of tau is at tau.
    """
    a = mpmath.mpf(alpha) - 1
    gaps = {score: a * (max(x) - score) for score in set(x)}
    counts = {score: x.count(score) for score in gaps}

    def weights(m: Any) -> dict[Any, Any]:
        return {s: (m - gap) ** (1 / a) for s, gap in gaps.items() if m - gap > mpmath.mpf("1e-40")}

    def excess(m: Any) -> Any:  # the norm of the weights is nearly linear in m, their sum is not
        return mpmath.fsum(counts[s] * w for s, w in weights(m).items()) ** a - 1

    least = mpmath.mpf(len(x)) ** -a / 2
    m = mpmath.findroot(
        excess, (least, mpmath.mpf(1)), solver="anderson", tol=1e-80, maxsteps=200, verify=False
    )
    if abs(excess(m)) > mpmath.mpf("1e-45"):
        raise ArithmeticError(f"The threshold was not found to 45 digits: {x}, alpha = {alpha}")
    y = weights(m)
    return [y.get(score, mpmath.mpf(0)) for score in x]


_SOLVE: dict[str, Callable[[Numbers, Any], Numbers]] = {
    "softmax": _softmax,
    "sparsemax": lambda x, _: project(x),
    "fusedmax": lambda x, lam: project(total_variation(x, lam)),
    "oscarmax": lambda x, lam: project(_cluster(x, lam)),
    "sqpnormmax": _sqpnormmax,
    "entmax": _entmax,
    "prox_tv1d": total_variation,
    "prox_oscar": _prox_oscar,
}


# --- Distances to the threshold ---------------------------------------------------------------------------------
# Which weights are zero: those of the pooled scores z (the scores, if a mapping pools none) that do not exceed tau.

_POOLED: dict[str, Callable[[Numbers, Fraction], Numbers]] = {
    "fusedmax": total_variation,
    "oscarmax": _cluster,
}


def distances(kernel: str, x: Sequence[float], y: Numbers, theta: float | None = None) -> Numbers | None:
    """|z - tau| at every position of finite scores with the weights y; None if no weight is ever zero.

    tau is read off the largest weight, whose z - tau is its derivative of Omega less that of a weight of zero.
    """
    if kernel.startswith("prox") or kernel == "softmax" or (kernel, theta) == ("entmax", 1):
        return None
    number = Fraction if kernel in RATIONAL else mpmath.mpf
    scores = [number(score) for score in x]
    z = _POOLED[kernel](scores, Fraction(theta or 0)) if kernel in _POOLED else scores
    top = max(range(len(y)), key=lambda i: y[i])
    tau = z[top] - _above_threshold(kernel, y, top, theta)
    return [abs(score - tau) for score in z]


def _above_threshold(kernel: str, y: Numbers, i: int, theta: float | None) -> Any:
    if kernel == "sqpnormmax":
        p = mpmath.mpf(theta)
        return y[i] ** (p - 1) * mpmath.fsum(weight**p for weight in y if weight > 0) ** (2 / p - 1)
    if kernel == "entmax":
        a = mpmath.mpf(theta) - 1
        return y[i] ** a / a
    return y[i]


# --- Jacobian products ------------------------------------------------------------------------------------------


def _averaged(y: Numbers, v: Numbers, groups: Sequence[Any]) -> Numbers:
    totals: dict[Any, Any] = {}
    for group, number in zip(groups, v, strict=True):
        total, count = totals.get(group, (0, 0))
        totals[group] = (total + number, count + 1)
    return [totals[group][0] / totals[group][1] for group in groups]


def _centred(y: Numbers, v: Numbers) -> Numbers:
    inside = [number for weight, number in zip(y, v, strict=True) if weight > 0]
    mean = sum(inside, Fraction(0)) / len(inside)
    return [number - mean if weight > 0 else Fraction(0) for weight, number in zip(y, v, strict=True)]


def _segment_means(y: Numbers, v: Numbers, lam: float) -> Numbers:
    return _averaged(y, v, list(accumulate((a != b for a, b in pairwise(y)), initial=0))) if lam else v


def _softmax_product(y: Numbers, v: Numbers, _: Any) -> Numbers:
    mean = mpmath.fsum(a * b for a, b in zip(y, v, strict=True))
    return [weight * (number - mean) for weight, number in zip(y, v, strict=True)]


def _sqpnormmax_product(y: Numbers, v: Numbers, p: float) -> Numbers:
    """Solve H g + mu 1 = v, 1'g = 0 on the support, H the Hessian of |y|_p^2 / 2.

    With D = diag(y^(2-p)) N^(p-2) / (p-1) and r = v - mu, g = D r - (2-p) / (p-1) N^-2 y <y, r>.
    """
    power = mpmath.mpf(p)
    support = [i for i, weight in enumerate(y) if weight > 0]
    mass = mpmath.fsum(y[i] ** power for i in support)
    tilted = {i: y[i] ** (2 - power) for i in support}
    total = mpmath.fsum(y[i] for i in support)

    def net(r: dict[int, Any]) -> Any:  # 1'g up to a factor
        return mass * mpmath.fsum(tilted[i] * r[i] for i in support) - (2 - power) * total * mpmath.fsum(
            y[i] * r[i] for i in support
        )

    mu = net({i: v[i] for i in support}) / net(dict.fromkeys(support, mpmath.mpf(1)))
    inner = mpmath.fsum(y[i] * (v[i] - mu) for i in support)
    norm = mass ** (1 / power)
    g = {
        i: (norm ** (power - 2) * tilted[i] * (v[i] - mu) - (2 - power) * norm**-2 * y[i] * inner)
        / (power - 1)
        for i in support
    }
    return [g.get(i, mpmath.mpf(0)) for i in range(len(y))]


def _entmax_product(y: Numbers, v: Numbers, alpha: float) -> Numbers:
    """diag(s) v - s s'v / sum s, s = y^(2 - alpha) on the support."""
    s = [weight ** (2 - mpmath.mpf(alpha)) if weight > 0 else mpmath.mpf(0) for weight in y]
    mean = mpmath.fsum(a * b for a, b in zip(s, v, strict=True)) / mpmath.fsum(s)
    return [a * (b - mean) for a, b in zip(s, v, strict=True)]


def _prox_oscar_product(z: Numbers, v: Numbers, lam: float) -> Numbers:
    if not lam:
        return v
    signs = [(number > 0) - (number < 0) for number in z]
    magnitudes = [abs(number) for number in z]
    means = _averaged(z, [s * number for s, number in zip(signs, v, strict=True)], magnitudes)
    # The smallest number has weight zero: the penalty leaves it free if it shares its rank with nobody.
    free = magnitudes.count(min(magnitudes)) == 1
    least = magnitudes.index(min(magnitudes))
    return [
        v[i] if free and i == least else s * mean
        for i, (s, mean) in enumerate(zip(signs, means, strict=True))
    ]


_PRODUCT: dict[str, Callable[[Numbers, Numbers, Any], Numbers]] = {
    "softmax": _softmax_product,
    "sparsemax": lambda y, v, _: _centred(y, v),
    "fusedmax": lambda y, v, lam: _centred(y, _segment_means(y, v, lam)),
    "oscarmax": lambda y, v, lam: _centred(y, _averaged(y, v, y) if lam else v),
    "sqpnormmax": _sqpnormmax_product,
    "entmax": _entmax_product,
    "prox_tv1d": _segment_means,
    "prox_oscar": _prox_oscar_product,
}


# --- The strengths' gradients -----------------------------------------------------------------------------------
# d/dtheta grad Omega(y): dy / dtheta is minus its product with the Jacobian, which averages over groups.


def _sign(number: Any) -> int:
    return (number > 0) - (number < 0)


def _total_variation_slope(y: Numbers, _: Any) -> Numbers:
    steps = [0, *(_sign(b - a) for a, b in pairwise(y)), 0]
    return [mpmath.mpf(before - after) for before, after in pairwise(steps)]


def _oscar_slope(y: Numbers, _: Any) -> Numbers:
    order = sorted(range(len(y)), key=lambda i: abs(y[i]), reverse=True)
    ranks = {i: k for k, i in enumerate(order, start=1)}
    return [mpmath.mpf(_sign(y[i]) * (len(y) - ranks[i])) for i in range(len(y))]


def _squared_pnorm_slope(y: Numbers, p: Any) -> Numbers:
    """The derivative of y^(p-1) N^(2-p), N = |y|_p, by a numerical derivative in 50 digits."""

    def gradient(weight: Any, power: Any) -> Any:
        norm = mpmath.fsum(w**power for w in y if w > 0) ** (1 / power)
        return weight ** (power - 1) * norm ** (2 - power)

    return [mpmath.diff(lambda q, w=w: gradient(w, q), p) if w > 0 else mpmath.mpf(0) for w in y]


def _tsallis_slope(y: Numbers, alpha: Any) -> Numbers:
    """The derivative of (y^a - 1) / a, a = alpha - 1, by its power series in a log y."""

    def slope(weight: Any) -> Any:
        logarithm = mpmath.log(weight)
        t = (alpha - 1) * logarithm
        return (
            logarithm**2
            * mpmath.nsum(
                lambda k: t**k * (k + 1) / mpmath.factorial(k + 2), [0, mpmath.inf], method="direct"
            )
            if abs(t) < 1
            else logarithm**2 * (t * mpmath.exp(t) - mpmath.expm1(t)) / t**2
        )

    return [slope(weight) if weight > 0 else mpmath.mpf(0) for weight in y]


SLOPE: dict[str, Callable[[Numbers, Any], Numbers]] = {
    "fusedmax": _total_variation_slope,
    "oscarmax": _oscar_slope,
    "sqpnormmax": _squared_pnorm_slope,
    "entmax": _tsallis_slope,
    "prox_tv1d": _total_variation_slope,
}
