"""Duality gaps: upper bounds on the suboptimality of weights y, from a dual point that is computed from y.

With P(y) = <x, y> - Omega(y), every dual point bounds max_Omega(x) from above, so D(dual point) - P(y) is at least the
suboptimality max_Omega(x) - P(y). The dual points come from the optimality conditions at y: at the optimum the bound is
tight. No argmax is computed, so the gap also detects errors of regmax's kernels. NumPy arrays and tensors are accepted.
"""

from collections.abc import Callable
from typing import Any

from regmax.arrays import exponential_ratio, framework, kept_first, namespace, ranks, sort_descending
from regmax.regularizers import KernelRegularizer, Regularizer

_ALMOST_ZERO = 1e-300
_MARGIN = 1e-8  # of the largest number: sums of a few such scores do not overflow


def gap(omega: Regularizer, x: Any, y: Any, keep: Any, gamma: Any, tolerance: float) -> Any:
    """The gap of every row of x and y (..., d); positions at which `keep` is False are ignored.

    gamma and omega's strength are numbers, or arrays of size 1 along the last dimension. Rows of y that are not on the
    simplex, with a `tolerance` on their sum, have an infinite gap; the others are normalized to sum to 1.
    """
    xp = namespace(x)
    if not x.shape[-1]:
        return x.sum(-1)
    some = keep.any(-1)[..., None]
    total = y.sum(-1)[..., None]
    off = abs(total - xp.where(some, 1.0, 0.0)) > tolerance
    infeasible = (off | (y < 0) | (~keep & (y != 0))).any(-1)
    y = xp.where(keep, y / xp.where(some, total, 1.0), 0.0)
    # Scores are centred at the row's maximum: this does not change the gap, but reduces its rounding error.
    top = xp.amax(xp.where(keep, x, -float("inf")), -1)[..., None]
    x = xp.where(keep, (x - xp.where(some, top, 0.0)) / gamma, 0.0)
    far = _MARGIN * float(xp.finfo(x.dtype).max)
    x = xp.where(x < -far, -far, x)  # -inf times a weight of 0 would be NaN
    if isinstance(omega, KernelRegularizer):
        omega = omega.exact
        found = _dual(omega)(omega.theta, x, y, keep) + omega.value(y, keep) - (x * y).sum(-1)
    else:
        found = _frank_wolfe_gap(x - _gradient(omega, y), y, keep)
    found = xp.where(some[..., 0], (found[..., None] * gamma)[..., 0], 0.0)
    return xp.where(infeasible & (x == x).all(-1), float("inf"), found)


def _dual(omega: KernelRegularizer) -> Callable[[Any, Any, Any, Any], Any]:
    if omega.kernel not in _DUALS:
        raise NotImplementedError(
            f"`duality_gap(omega, ...)` needs a known dual. Got {type(omega).__name__}: add one to `regmax.duality`."
        )
    return _DUALS[omega.kernel]


def _frank_wolfe_gap(slope: Any, y: Any, keep: Any) -> Any:
    """max_i slope_i - <slope, y>, slope = x - grad Omega(y): Omega, being convex, lies above its tangent at y."""
    xp = namespace(y)
    best = xp.amax(xp.where(keep, slope, -float("inf")), -1)
    return best - xp.where(y != 0, slope * y, 0.0).sum(-1)


def _gradient(omega: Any, y: Any) -> Any:
    """grad Omega(y); if it is undefined at 0, as that of y log y, it is evaluated next to 0."""
    xp = namespace(y)
    gradient = omega.gradient(y)
    undefined = (gradient != gradient) & (y == 0)
    if not bool(undefined.any()):
        return gradient
    return xp.where(undefined, omega.gradient(xp.where(y == 0, _ALMOST_ZERO, y)), gradient)


def _log_sum_exp(_: Any, x: Any, y: Any, keep: Any) -> Any:
    """max_Omega(x) itself, in closed form."""
    xp = namespace(x)
    return xp.log(xp.where(keep, xp.exp(x), 0.0).sum(-1))


def _squared_norm(_: Any, x: Any, y: Any, keep: Any) -> Any:
    return _squared_p_norm(2.0, x, y, keep)


def _squared_p_norm(p: Any, x: Any, y: Any, keep: Any) -> Any:
    """max over y >= 0 of <x - tau, y> - 1/2 ||y||_p^2 is 1/2 ||(x - tau)_+||_q^2, 1/p + 1/q = 1.

    At the optimum x - tau is the gradient on the support, and <grad, y> = ||y||_p^2.
    """
    tau = (x * y).sum(-1, keepdims=True) - _norm(y, p) ** 2
    return _above(tau, x, keep, p / (p - 1))


def _tsallis_entropy(alpha: Any, x: Any, y: Any, keep: Any) -> Any:
    """For every tau, tau + (sum_i w_i^alpha - 1) / alpha with w = (1 + a (x - tau))_+^(1/a), a = alpha - 1.

    This is the conjugate of (w^alpha - w) / (alpha a); at a = 0, w = exp(x - tau). At the optimum w = y, and x - tau is
    the gradient (y^a - 1) / a on the support.
    """
    xp, a = namespace(x), alpha - 1
    logarithm = xp.log(xp.where(y > 0, y, 1.0))
    gradient = logarithm * exponential_ratio(a * logarithm)
    tau = ((x - gradient) * y).sum(-1, keepdims=True)
    above = x - tau
    reach = a * above
    inside = keep & (reach > -1)
    reach = xp.where(inside, reach, 0.0)
    curved = abs(reach) > 0
    growth = xp.where(curved, xp.log1p(reach) / xp.where(curved, reach, 1.0), 1.0)
    powers = xp.where(inside, xp.exp(alpha * above * growth), 0.0)
    return (tau + (powers.sum(-1, keepdims=True) - 1) / alpha)[..., 0]


def _above(tau: Any, w: Any, keep: Any, q: Any = 2.0) -> Any:
    """tau + 1/2 ||(w - tau)_+||_q^2, for every tau an upper bound on max over the simplex of <w, y> - 1/2 ||y||_p^2."""
    xp = namespace(w)
    rest = xp.where(keep & ~(w <= tau), w - tau, 0.0)
    half = (
        0.5 * (rest * rest).sum(-1, keepdims=True)
        if type(q) is float and q == 2
        else 0.5 * _norm(rest, q) ** 2
    )
    return (tau + half)[..., 0]


def _norm(y: Any, p: Any) -> Any:
    """||y||_p of nonnegative rows, scaled by the largest entry, because powers such as 101 would underflow."""
    xp = namespace(y)
    top = xp.amax(y, -1)[..., None]
    top = xp.where(top > 0, top, 1.0)
    positive = y > 0
    # The power is not applied to zeros, where its derivative may be infinite.
    powers = xp.where(positive, xp.where(positive, y / top, 1.0) ** p, 0.0)
    return top * powers.sum(-1, keepdims=True) ** (1 / p)


def _fused_lasso(lam: Any, x: Any, y: Any, keep: Any) -> Any:
    """lam TV(y) is the maximum of sum_i u_i (y_i - y_{i+1}) over |u_i| <= lam: each such u gives a bound.

    It is the bound for the squared norm at w_i = x_i - u_i + u_{i-1}. On the support w - tau = y, hence
    u_i = u_{i-1} + (x - tau - y)_i. At zeros u_i may be larger; the smallest value in [-lam, lam] is taken, because
    later zeros can raise u but not lower it. At a step of the weights u is lam or -lam: the second bound restarts u
    there, so that errors do not accumulate along the row. Weights that are equal only up to rounding make false steps,
    so the smaller of both bounds is returned.
    """
    xp = namespace(x)
    x, y = kept_first(x, keep)[0], kept_first(y, keep)[0]
    keep = kept_first(keep, keep)[0]
    both = keep[..., 1:] & keep[..., :-1]
    step = xp.where(both, y[..., :-1] - y[..., 1:], 0.0)
    penalty = (lam * abs(step)).sum(-1, keepdims=True)
    tau = (x * y).sum(-1, keepdims=True) - (y * y).sum(-1, keepdims=True) - penalty
    bounds = [
        _above(tau, x - _differences(_chain(x - tau - y, step, both, lam, anew)), keep)
        for anew in (False, True)
    ]
    return xp.minimum(*bounds)


def _chain(excess: Any, step: Any, both: Any, lam: Any, anew: bool) -> Any:
    """u between neighbours, (..., d - 1): running sums of the excess, clipped to [-lam, lam]."""
    xp = namespace(excess)
    u, chain = xp.zeros_like(excess[..., :1]), []
    lam = lam + xp.zeros_like(u)
    for i in range(excess.shape[-1] - 1):
        u = xp.clip(u + excess[..., i : i + 1], -lam, lam)
        if anew:
            here = step[..., i : i + 1]
            u = xp.where(here == 0, u, lam * xp.sign(here))
        u = xp.where(both[..., i : i + 1], u, 0.0)
        chain.append(u)
    return xp.concatenate(chain, -1) if chain else excess[..., :0]


def _differences(u: Any) -> Any:
    """u_i - u_{i-1}, with zeros at both ends."""
    xp = namespace(u)
    end = (
        xp.zeros_like(u[..., :1])
        if u.shape[-1]
        else xp.zeros((*u.shape[:-1], 1), dtype=u.dtype, **_device(u))
    )
    return xp.concatenate([u, end], -1) - xp.concatenate([end, u], -1)


def _device(x: Any) -> dict[str, Any]:
    return {"device": x.device} if framework(x) == "torch" else {}


def _oscar(lam: Any, x: Any, y: Any, keep: Any) -> Any:
    """OSCAR is the maximum of <w, y> over the w whose k largest sum to at most lam ((d - 1) + ... + (d - k)), all k.

    On the support x - tau - w = y. If rounding or a suboptimal y makes w infeasible, it is lowered until it is not.
    """
    xp = namespace(x)
    d = (keep * xp.ones_like(y)).sum(-1, keepdims=True)  # floating: integers times lam may be float32
    k = ranks(y)
    inside = k <= d
    weights = xp.where(inside, lam * (d - k), 0.0)
    penalty = (weights * sort_descending(y)).sum(-1, keepdims=True)
    tau = (x * y).sum(-1, keepdims=True) - (y * y).sum(-1, keepdims=True) - penalty
    w = x - tau - y
    largest = xp.where(inside, sort_descending(xp.where(keep, w, -float("inf"))), 0.0)
    excess = xp.where(inside, (largest - weights).cumsum(-1) / k, -float("inf"))
    over = xp.amax(excess, -1)[..., None]
    # x - tau - w is y plus the amount by which w was lowered; this form avoids cancellation at low scores.
    rest = xp.where(keep, y + xp.where(over <= 0, 0.0, over), 0.0)
    return (tau + 0.5 * (rest * rest).sum(-1, keepdims=True))[..., 0]


_DUALS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "softmax": _log_sum_exp,
    "sparsemax": _squared_norm,
    "sqpnormmax": _squared_p_norm,
    "entmax": _tsallis_entropy,
    "fusedmax": _fused_lasso,
    "oscarmax": _oscar,
}
