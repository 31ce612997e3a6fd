"""The conformance suite's criterion: which of the exact cases an implementation passes.

    from conformance import Implementation, judge

    mine = Implementation("mine", lambda case: (my_sparsemax(case.x),), lambda case: case.kernel == "sparsemax")
    print(judge(mine))  # cases passed, cases run, the names of the others

Needs NumPy, exact_cases.py and exact_cases.json. The runners of regmax and its peers are in conformance_table.py.

A case passes if |y - exact| <= 2e-6 (float32) or 1e-12 (float64), and y is zero where the exact weight is, unless the
score's distance to the threshold is at most that. Derivatives, if there are any, must be within four times that: the
Jacobian's product with the case's direction v, and the derivative of <v, y> in the strength, relative to v and, for
sqpnormmax, to the Jacobian's norm, 1 / (p - 1). At a kink derivatives are those of the exact structure, and compared
only if y has the same zeros and equal weights. Proximal operators are measured against the scores' scale.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from exact_cases import Case, load

TOLERANCE = {"float32": 2e-6, "float64": 1e-12}
# The weights, and if the implementation has them the product with v and the derivative of <v, y> in the strength.
Result = tuple[Any, ...]


class Implementation(NamedTuple):
    """A name, a function of a case, and which cases it covers."""

    name: str
    run: Callable[[Case], Result]
    covers: Callable[[Case], bool] = lambda case: True


def passes(case: Case, result: Result) -> bool:
    """Whether the weights and, if there are any, the derivatives are right."""
    y, *derivatives = result
    y = np.asarray(y)
    tolerance = TOLERANCE[str(case.x.dtype)]
    scale = np.maximum(1.0, case.scale()) if case.kernel.startswith("prox") else 1.0
    if not (np.abs(y.astype(np.float64) - case.weights) <= tolerance * scale).all():
        return False
    if not _same_zeros(case, y, tolerance):
        return False
    if case.product is None or not derivatives or not same_structure(case, y):
        return True
    norm = 1 / (case.theta - 1) if case.kernel == "sqpnormmax" and case.theta else 1.0
    size = norm * max(float(np.abs(case.v).max()), 1.0)
    expected = [case.product, case.strength_gradient]
    sizes = [size, size * max(1.0, *np.abs(case.strength_slope))]
    return all(
        wanted is None or bool((np.abs(np.asarray(found, np.float64) - wanted) <= 4 * tolerance * most).all())
        for found, wanted, most in zip(derivatives, expected, sizes, strict=False)
        if found is not None
    )


def _same_zeros(case: Case, y: np.ndarray, tolerance: float) -> bool:
    """Whether y is zero where the exact weight is, wherever rounding cannot decide it; always at deleted positions."""
    if case.kernel.startswith("prox"):
        return True
    # A weight below the type's least normal number may be flushed to zero.
    vanishes = (y == 0) & (case.weights < np.finfo(case.x.dtype).tiny)
    differ = ((y == 0) != (case.weights == 0)) & ~vanishes
    return not (differ & (case.distances > tolerance)).any()


def same_structure(case: Case, y: np.ndarray) -> bool:
    """Whether the zeros and ties are the exact ones, also of the exact weights rounded to the case's type."""
    exact = _pattern(case.weights[case.keep])
    rounded = _pattern(case.weights[case.keep].astype(case.x.dtype))
    return np.array_equal(exact, rounded) and np.array_equal(exact, _pattern(y[case.keep]))


def _pattern(y: np.ndarray) -> np.ndarray:
    """Which weights are zero, and which are equal."""
    return np.concatenate([(y[:, None] == y[None]), y[None] == 0])


def judge(implementation: Implementation) -> tuple[int, int, list[str]]:
    """How many cases pass, of how many, and the names of those that do not."""
    failed, total = [], 0
    for case in load():
        if not implementation.covers(case):
            continue
        total += 1
        try:
            right = passes(case, implementation.run(case))
        except (ArithmeticError, RuntimeError, ValueError) as error:
            print(f"{implementation.name}: {case.name}: {error}", file=sys.stderr)
            right = False
        if not right:
            failed.append(case.name)
    return total - len(failed), total, failed
