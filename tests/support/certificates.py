"""Duality gaps computed only from scores and weights: each bounds the distance of y from the optimum.

For every y on the simplex and every dual point, P(y) = <x, y> - Omega(y) <= max_Omega(x) <= D(dual point), so a small
D - P certifies y, however it was computed. The dual points are read off y by the optimality conditions, so nothing is
solved, and no code is shared with the library. Rows of float64: x with its maximum at zero, y, and `alive`, False at
deleted positions; these come last.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Array = np.ndarray


def gap(mapping: str, x: Array, y: Array, alive: Array, **parameters: float) -> Array:
    """The gap of every row, for the Omega of a mapping."""
    gaps = {
        "softmax": negative_entropy_gap,
        "sparsemax": squared_p_norm_gap,
        "fusedmax": fused_lasso_gap,
        "oscarmax": oscar_gap,
        "sqpnormmax": squared_p_norm_gap,
        "entmax": tsallis_gap,
    }
    return gaps[mapping](x, y, alive, **parameters)


def negative_entropy_gap(x: Array, y: Array, alive: Array) -> Array:
    """max_y <x, y> - sum y log y is log-sum-exp, which does not depend on y."""
    highest = np.log(_rows(np.where(alive, np.exp(x), 0)))
    return (highest + _rows(y * np.log(np.where(y > 0, y, 1))) - _rows(x * y))[:, 0]


def squared_p_norm_gap(x: Array, y: Array, alive: Array, p: float = 2.0) -> Array:
    """max_y <x, y> - 1/2 ||y||_p^2 <= tau + 1/2 ||(x - tau)_+||_q^2 for every tau; x - tau = grad Omega(y) on y > 0."""
    norm = _norm(y, p)
    with np.errstate(divide="ignore"):
        gradient = np.where(y > 0, norm ** (2 - p) * y ** (p - 1), 0)
    tau = _rows(y * (x - gradient)) / _rows(y)
    z = np.where(alive, np.maximum(x - tau, 0), 0)
    return (tau + (_norm(z, p / (p - 1)) ** 2 + norm**2) / 2 - _rows(x * y))[:, 0]


def tsallis_gap(x: Array, y: Array, alive: Array, alpha: float) -> Array:
    """max_y <x, y> - sum y^alpha / (alpha a) <= tau + sum w^alpha / alpha, w = (a (x - tau))_+^(1/a), a = alpha - 1.

    On y > 0, x - tau is the gradient y^a / a. The constant of Omega cancels.
    """
    if alpha == 1:
        return negative_entropy_gap(x, y, alive)
    a = alpha - 1
    tau = _rows(y * (x - y**a / a)) / _rows(y)
    w = np.where(alive, np.maximum(a * (x - tau), 0), 0) ** (1 / a)
    return (tau + _rows(w**alpha) / alpha + _rows(y**alpha) / (alpha * a) - _rows(x * y))[:, 0]


def fused_lasso_gap(x: Array, y: Array, alive: Array, lam: float) -> Array:
    """TV is the maximum of sum_i u_i (y_i - y_i+1) over |u| <= lam, so w = x - (u_i - u_i-1) has a sparsemax above it.

    u is the running sum of x - tau - y. If y = 0 it may be larger, and the smallest u that |u| <= lam allows is
    compatible with the following positions.
    """
    last = alive.sum(axis=1) - 1
    step = np.diff(y, axis=1) * alive[:, 1:]
    edges = _rows((step != 0) & ((y[:, 1:] == 0) | (y[:, :-1] == 0)))
    penalty = lam * _rows(np.abs(step))

    def dual(tau: Array) -> Array:
        u = np.zeros((y.shape[1] + 1, len(y)))  # u[i]: between positions i - 1 and i; transposed for the loop
        excess = (x - tau - y).T.copy()
        for i in range(y.shape[1]):
            u[i + 1] = np.clip(u[i] + excess[i], -lam, lam)
            u[i + 1][last <= i] = 0  # u is zero at the end of the row
        w = x - np.diff(u, axis=0).T
        return tau + _rows(np.where(alive, np.maximum(w - tau, 0), 0) ** 2) / 2

    return _least(dual, x, y, penalty, lam * edges) + (_rows(y**2) / 2 + penalty - _rows(x * y))[:, 0]


def oscar_gap(x: Array, y: Array, alive: Array, lam: float) -> Array:
    """OSCAR is the maximum of <w, y> over the w whose k largest never sum to more than lam ((d-1) + ... + (d-k))."""
    d = alive.sum(axis=1, keepdims=True)
    rank = np.arange(1, y.shape[1] + 1)
    weights = np.where(rank <= d, lam * (d - rank), 0)
    penalty = _rows(weights * -np.sort(-y, axis=1))

    def dual(tau: Array) -> Array:
        w = np.where(alive, x - tau - y, -np.inf)
        largest = -np.sort(-w, axis=1)
        too_much = np.cumsum(np.where(rank <= d, largest, 0) - weights, axis=1).max(axis=1, keepdims=True)
        w = np.where(alive, w - np.maximum(too_much, 0), 0)  # every partial sum decreases at least as much
        return tau + _rows(np.where(alive, np.maximum(x - tau - w, 0), 0) ** 2) / 2

    used = _rows(np.where(rank <= _rows(y > 0), weights, 0))
    return _least(dual, x, y, penalty, used) + (_rows(y**2) / 2 + penalty - _rows(x * y))[:, 0]


def _least(dual: Callable[[Array], Array], x: Array, y: Array, penalty: Array, slope: Array) -> Array:
    """The lower of two dual values: tau by x - y - (penalty's gradient) = tau, averaged over y or over its support.

    Averaged over y, the gradient is the penalty, which is homogeneous, and a weight that is positive only by rounding
    has no influence. Averaged over the support, it is the penalty's `slope` there, and rounding errors cancel.
    """
    by_weight = _rows(y * (x - y)) - penalty
    by_support = (_rows(np.where(y > 0, x - y, 0)) - slope) / _rows(y > 0)
    return np.minimum(dual(by_weight), dual(by_support))[:, 0]


def _rows(terms: Array) -> Array:
    return np.sum(terms, axis=1, keepdims=True)


def _norm(y: Array, p: float) -> Array:
    """||y||_p of nonnegative rows, scaled by the largest entry: with q = 101 the powers would underflow."""
    largest = np.maximum(y.max(axis=1, keepdims=True), np.finfo(float).tiny)
    return largest * _rows((y / largest) ** p) ** (1 / p)
