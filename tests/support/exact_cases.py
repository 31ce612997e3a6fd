"""The exact cases of tests/conformance/exact_cases.json, and what is wrong with an implementation's result of one."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

_BESIDE = Path(__file__).with_name("exact_cases.json")  # as downloaded from the docs
PATH = _BESIDE if _BESIDE.exists() else Path(__file__).parents[1] / "conformance" / _BESIDE.name
Array = np.ndarray


class Case(NamedTuple):
    """A row and its exact result; `write_exact_cases.py` says what the fields mean."""

    name: str
    kernel: str
    theta: float | None
    x: Array  # (d,), zero at deleted positions
    keep: Array  # (d,)
    groups: Array  # (d,), 0 for no weight
    weights: Array  # (d,), exact, rounded to float64
    v: Array | None
    product: Array | None
    strength_gradient: float | None = None  # the derivative of <v, y> in theta
    strength_slope: Array | None = None  # d/dtheta grad Omega(y), against which that derivative is measured
    distances: Array | None = None  # (d,), to the threshold; infinite if there is none

    def scale(self) -> Array:
        """What errors are measured against, by position.

        A weight is measured against the row's largest. A proximal operator moves a score by at most 2 lam (prox_tv1d)
        or lam d (prox_oscar), so its result is measured against itself and this move.
        """
        if not self.kernel.startswith("prox"):
            return np.full(self.x.shape, self.weights.max(initial=0))
        reach = 4 if self.kernel == "prox_tv1d" else len(self.x)
        return np.maximum(np.abs(self.weights), reach * self.theta)


@cache
def load() -> list[Case]:
    """All cases, in the file's order."""
    return [_case(**raw) for raw in json.loads(PATH.read_text())]


def _case(
    name: str, kernel: str, theta: float | None, dtype: str, x: Any, groups: Any, values: Any, **more: Any
) -> Case:
    keep = np.array([score is not None for score in x])
    scores = np.array([score or 0.0 for score in x]).astype(dtype)
    values = np.array([0.0, *values])
    v, product = more.get("v"), more.get("product")
    return Case(
        name,
        kernel,
        theta,
        scores,
        keep,
        np.array(groups),
        values[groups],
        None if v is None else np.array(v).astype(dtype),
        None if product is None else np.array(product),
        more.get("strength_gradient"),
        np.array(more.get("strength_slope", [0.0])),
        np.array([np.inf if one is None else one for one in more.get("distances", [None] * len(x))]),
    )


def faults(case: Case, y: Array, ulps: float = 4.0) -> list[str]:
    """What is wrong with the weights `y`: their support, equal weights, order, or values."""
    found = []
    expected = case.weights.astype(case.x.dtype)
    scale = np.minimum(case.scale(), np.finfo(case.x.dtype).max / 2).astype(case.x.dtype)
    unit = np.spacing(scale).astype(np.float64)
    # A segment's mean in prox_tv1d may be zero by cancellation; the other zeros are zero by structure.
    if case.kernel != "prox_tv1d" and not np.array_equal(y != 0, expected != 0):
        found.append("support")
    by_group = np.argsort(case.groups, kind="stable")
    groups, grouped = case.groups[by_group], y[by_group]
    if ((groups[1:] == groups[:-1]) & (grouped[1:] != grouped[:-1])).any():
        found.append("equal weights")
    if case.kernel not in ("fusedmax", "prox_tv1d"):  # whose segments are rounded one by one
        order = np.argsort(case.weights, kind="stable")
        ours, exact = y[order], case.weights[order]
        if ((ours[1:] < ours[:-1]) & (exact[1:] > exact[:-1])).any():
            found.append("order")
    if not (np.abs(y.astype(np.float64) - case.weights) <= ulps * unit).all():
        found.append("values")
    return found


def product_faults(case: Case, product: Array, ulps: float = 8.0) -> list[str]:
    """Whether a Jacobian product is off by more than `ulps` units of the Jacobian's norm times the direction's."""
    norm = 1 / (case.theta - 1) if case.kernel == "sqpnormmax" and case.theta else 1.0
    unit = float(np.spacing(case.x.dtype.type(norm * max(np.abs(case.v).max(), 1))))
    right = (np.abs(product.astype(np.float64) - case.product) <= ulps * unit).all()
    return [] if right else ["product"]
