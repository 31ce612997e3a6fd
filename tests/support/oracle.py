"""An independent solver of max_y y'x - gamma Omega(y) over the simplex: cvxpy and Clarabel, nothing of `src`.

All rows are solved as one convex problem (their sum, because rows do not interact): building a problem costs more than
solving it.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import NamedTuple

import cvxpy as cp
import numpy as np

Array = np.ndarray
TOLERANCES = {
    "tol_gap_abs": 1e-13,
    "tol_gap_rel": 1e-13,
    "tol_feas": 1e-13,
    "tol_ktratio": 1e-10,
    "max_iter": 300,
}
# Powers and p-norms by second-order cones, exact for the a/b of the table: Clarabel's power cones reach only 1e-5.
# cvxpy had no other way before 1.8.
BY_CONES = {"approx": True} if "approx" in inspect.signature(cp.pnorm).parameters else {}


class Solution(NamedTuple):
    """Optimal weights of every row, with the proof that some are zero."""

    y: Array  # on the simplex
    slack: Array  # the multiplier of y >= 0; if it is positive, y is exactly zero


def _half_squares(y: cp.Expression) -> cp.Expression:
    return cp.sum(cp.square(y), axis=1) / 2


def _negative_entropy(y: cp.Expression) -> cp.Expression:
    return -cp.sum(cp.entr(y), axis=1)


def _fused_lasso(y: cp.Expression, lam: float) -> cp.Expression:
    return _half_squares(y) + lam * cp.sum(cp.abs(y[:, 1:] - y[:, :-1]), axis=1)


def _oscar(y: cp.Expression, lam: float) -> cp.Expression:
    i, j = np.triu_indices(y.shape[1], k=1)
    return _half_squares(y) + lam * cp.sum(cp.maximum(y[:, i], y[:, j]), axis=1)


def _squared_p_norm(y: cp.Expression, p: float) -> cp.Expression:
    return cp.hstack([cp.square(cp.pnorm(y[row], p, **BY_CONES)) for row in range(y.shape[0])]) / 2


def _negative_tsallis_entropy(y: cp.Expression, alpha: float) -> cp.Expression:
    if alpha == 1:
        return _negative_entropy(y)
    # By second-order cones, as for the p-norm.
    return (cp.sum(cp.power(y, alpha, **BY_CONES), axis=1) - 1) / (alpha * (alpha - 1))


OMEGAS: dict[str, Callable[..., cp.Expression]] = {
    "softmax": _negative_entropy,
    "sparsemax": _half_squares,
    "fusedmax": _fused_lasso,
    "oscarmax": _oscar,
    "sqpnormmax": _squared_p_norm,
    "entmax": _negative_tsallis_entropy,
}


def _omega(mapping: str, y: cp.Expression, parameters: dict[str, float]) -> cp.Expression:
    if y.shape[1] == 1 and mapping in (
        "fusedmax",
        "oscarmax",
    ):  # a single weight has no neighbour: the sum is empty
        return _half_squares(y)
    return OMEGAS[mapping](y, **parameters)


def value(mapping: str, y: Array, **parameters: float) -> Array:
    """Omega of every row, by cvxpy's own evaluation of the expression that it minimises."""
    return np.asarray(_omega(mapping, cp.Constant(y), parameters).value).reshape(len(y))


def objective(mapping: str, x: Array, y: Array, gamma: Array, **parameters: float) -> Array:
    return np.sum(x * y, axis=1) - gamma * value(mapping, y, **parameters)


def solve(mapping: str, x: Array, gamma: Array, **parameters: float) -> Solution:
    """The argmax of every row of x (n, d), gamma (n,), made exactly feasible."""
    y = cp.Variable(x.shape)
    nonnegative = y >= 0
    scores = cp.sum(cp.multiply(x, y), axis=1)
    problem = cp.Problem(
        cp.Maximize(cp.sum(scores - cp.multiply(gamma, _omega(mapping, y, parameters)))),
        [nonnegative, cp.sum(y, axis=1) == 1],
    )
    with warnings.catch_warnings():  # tolerances of 1e-13 are rarely met; the tests compare the objectives
        warnings.filterwarnings("ignore", message="Solution may be inaccurate")
        problem.solve(solver=cp.CLARABEL, **TOLERANCES)
    solution = Solution(_feasible(y.value), np.asarray(nonnegative.dual_value))
    polish = {"sqpnormmax": _polish, "entmax": _polish_tsallis}.get(mapping)
    if polish is not None and parameters != {"alpha": 1}:
        polished = [polish(*row, **parameters) for row in zip(x, solution.y, gamma, strict=True)]
        solution = Solution(*(np.stack(parts) for parts in zip(*polished, strict=True)))
    return solution


def _feasible(y: Array) -> Array:
    y = np.maximum(y, 0)
    return y / y.sum(axis=1, keepdims=True)


def _polish(x: Array, y: Array, gamma: float, p: float) -> Solution:
    """Newton's method on the optimality conditions of the squared p-norm, for which the solver stops at 1e-6.

    For the clearly positive weights: x - gamma grad Omega(y) = tau, sum y = 1, with the gradient and the
    Hessian of Section 3.1 of the paper; the others follow from tau. A few steps from the solver's result.
    """
    support = y > 1e-5
    one = np.ones((support.sum(), 1))
    for _ in range(4):
        norm, s = np.sum(y**p) ** (1 / p), y[support]
        gradient = norm ** (2 - p) * s ** (p - 1)
        u = s ** (p - 1) * norm ** (1 - p)
        hessian = np.diag((p - 1) * norm ** (2 - p) * s ** (p - 2)) + (2 - p) * np.outer(u, u)
        system = np.block([[gamma * hessian, one], [one.T, np.zeros((1, 1))]])
        *step, tau = np.linalg.solve(system, np.append(x[support] - gamma * gradient, 1 - y.sum()))
        y = (np.maximum(x - tau, 0) / (gamma * norm ** (2 - p))) ** (1 / (p - 1))
        y[support] = s + step
    return Solution(y, np.maximum(tau - x, 0))


def _polish_tsallis(x: Array, y: Array, gamma: float, alpha: float) -> Solution:
    """The same for the Tsallis entropy, whose gradient is y^(alpha-1) / (alpha-1) and whose Hessian is diagonal."""
    a = alpha - 1
    support = y > 1e-5
    for _ in range(4):
        s = y[support]
        inverse = s ** (2 - alpha) / gamma
        excess = x[support] - gamma * s**a / a
        tau = (inverse @ excess - (1 - y.sum())) / inverse.sum()
        y = np.maximum(a * (x - tau) / gamma, 0) ** (1 / a)
        y[support] = s + inverse * (excess - tau)
    return Solution(y, np.maximum(tau - x, 0))


def minimize(problem: Callable[[cp.Variable], cp.Expression], d: int) -> Array:
    """The minimiser of one convex function of d unconstrained variables, for the proximal operators."""
    z = cp.Variable(d)
    cp.Problem(cp.Minimize(problem(z))).solve(solver=cp.CLARABEL, **TOLERANCES)
    return z.value
