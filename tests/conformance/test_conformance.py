"""Every implementation passes all cases of the conformance suite; those of other frameworks in tests/frameworks."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from conformance import judge, passes
from conformance_kernels import instruction_sets, reference
from conformance_table import RUNNERS, TIERS
from exact_cases import load

HERE = [
    "reference",
    "tensors",
    "torch",
    *(f"core {isa} {tier}" for isa in instruction_sets() for tier in TIERS),
]


@pytest.mark.parametrize("name", HERE)
def test_all_cases_pass(name: str) -> None:
    passed, total, failed = judge(RUNNERS[name][1]())
    assert failed == []
    assert passed == total > 1000


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_explorer_s_javascript_passes() -> None:
    _, total, failed = judge(RUNNERS["javascript"][1]())
    assert failed == []
    assert total > 1000


def test_the_criterion_finds_errors() -> None:
    case = next(
        case for case in load() if case.kernel == "fusedmax" and case.product is not None and case.theta
    )
    y, product = reference().run(case)
    assert passes(case, (y, product, case.strength_gradient))
    assert not passes(case, (y + 1e-5, product))
    assert not passes(case, (y, product + 1e-3))
    assert not passes(case, (y, product, case.strength_gradient + 1e-2))
    assert not passes(case, (np.full_like(y, np.nan), product))


def test_the_criterion_finds_zeros_that_are_none() -> None:
    """Unless the score is at the threshold, where the exact weight is zero and rounding decides."""
    cases = [case for case in load() if case.kernel == "sparsemax" and (case.weights == 0).any()]
    found = set()
    for case in cases:
        i = (
            int(np.flatnonzero((case.weights == 0) & case.keep)[0])
            if (case.weights[case.keep] == 0).any()
            else -1
        )
        y = case.weights.copy()
        y[i] += 1e-14
        decided = not case.keep[i] or case.distances[i] > 1e-6
        assert passes(case, (y,)) != decided
        found.add(decided)
    assert found == {True, False}
