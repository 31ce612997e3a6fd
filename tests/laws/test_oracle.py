"""Every mapping agrees with an independent convex solver, on more than a thousand random problems."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import oracle
import pytest
from table import TABLE, Entry

import regmax

SIZES = (1, 2, 3, 5, 8, 16, 32, 64)
SCALES = (0.1, 1.0, 10.0)
GAMMAS = (0.5, 1.0, 2.0)  # powers of two: division by them is exact, also in float32
REPEATS = 2

PROBLEMS = [pytest.param(entry, d, id=f"{entry}-d={d}") for entry in TABLE for d in SIZES]


def random_problems(entry: Entry, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores (n, d), with one scale and one gamma per row."""
    rng = np.random.default_rng([TABLE.index(entry), d])
    scale, gamma = (grid.ravel() for grid in np.meshgrid(np.repeat(SCALES, REPEATS), GAMMAS))
    return scale[:, None] * rng.normal(size=(scale.size, d)), gamma


@lru_cache
def solved(entry: Entry, d: int) -> oracle.Solution:
    x, gamma = random_problems(entry, d)
    return oracle.solve(entry.mapping, x, gamma, **entry.parameters)


def test_the_problems_are_more_than_a_thousand() -> None:
    assert sum(len(random_problems(*problem.values)[0]) for problem in PROBLEMS) > 1000


@pytest.mark.parametrize(("entry", "d"), PROBLEMS)
def test_argmax_agrees_with_the_solver(entry: Entry, d: int) -> None:
    x, gamma = random_problems(entry, d)
    solution = solved(entry, d)
    y = np.concatenate([entry(row[None], gamma=float(g)) for row, g in zip(x, gamma, strict=True)])

    np.testing.assert_allclose(y, solution.y, rtol=0, atol=1e-6)
    ours = oracle.objective(entry.mapping, x, y, gamma, **entry.parameters)
    theirs = oracle.objective(entry.mapping, x, solution.y, gamma, **entry.parameters)
    assert np.all(ours >= theirs - 1e-9), (theirs - ours).max()

    zero, positive = (
        solution.slack > 1e-4,
        solution.y > 1e-4,
    )  # neither: too close to a kink for the solver to decide
    assert np.mean(zero | positive) > (0.9 if entry.beta == 1 and entry.sparse else 0.4)
    if entry.sparse:
        assert np.all(y[zero] == 0.0)
    assert np.all(y[positive] > 0.0)


@pytest.mark.parametrize(("entry", "d"), [problem for problem in PROBLEMS if problem.values[0].fuses])
def test_weights_that_the_solver_fuses_are_bitwise_equal(entry: Entry, d: int) -> None:
    x, gamma = random_problems(entry, d)
    y = np.concatenate([entry(row[None], gamma=float(g)) for row, g in zip(x, gamma, strict=True)])
    expected = solved(entry, d).y
    if not entry.positional:  # clusters are adjacent in sorted order
        order = np.argsort(expected, axis=1)
        y, expected = np.take_along_axis(y, order, axis=1), np.take_along_axis(expected, order, axis=1)
    fused = np.abs(np.diff(expected, axis=1)) < 1e-7
    assert np.all(y[:, 1:][fused] == y[:, :-1][fused])


@pytest.mark.parametrize(("entry", "d"), PROBLEMS)
def test_float32_is_within_rounding_of_float64(entry: Entry, d: int) -> None:
    x, gamma = random_problems(entry, d)
    single = x.astype(np.float32)
    for g in GAMMAS:
        rows = single[gamma == g]
        y = entry(rows, gamma=g)
        assert y.dtype == np.float32
        np.testing.assert_allclose(y, entry(rows.astype(np.float64), gamma=g), rtol=0, atol=2e-6)


@pytest.mark.parametrize("entry", TABLE, ids=str)
def test_value_and_max_agree_with_the_solver(entry: Entry) -> None:
    x, gamma = random_problems(entry, 8)
    y = solved(entry, 8).y
    np.testing.assert_allclose(
        entry.omega.value(y), oracle.value(entry.mapping, y, **entry.parameters), atol=1e-12
    )
    for g in GAMMAS:
        rows = gamma == g
        highest = oracle.objective(entry.mapping, x[rows], y[rows], gamma[rows], **entry.parameters)
        np.testing.assert_allclose(regmax.regularized_max(entry.omega, x[rows], gamma=g), highest, atol=1e-9)
