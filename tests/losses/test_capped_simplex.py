"""`project_capped_simplex`: against rational arithmetic, an independent solver and finite differences."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import torch
from fronts import FRONTS, Front
from hypothesis import given
from hypothesis import strategies as st
from oracle import TOLERANCES
from strategies import scores

import regmax

BOTH = pytest.mark.parametrize("front", FRONTS.values(), ids=list(FRONTS))


def exact(x: np.ndarray, upper: np.ndarray, total: float) -> list[Fraction]:
    """The projection of one row in rational numbers: a binary search over the breakpoints, then a linear equation."""
    xs, us, c = [Fraction(v) for v in x.tolist()], [Fraction(v) for v in upper.tolist()], Fraction(total)

    def weights(tau: Fraction) -> list[Fraction]:
        return [min(max(v - tau, Fraction(0)), u) for v, u in zip(xs, us, strict=True)]

    points = sorted({*xs, *(v - u for v, u in zip(xs, us, strict=True))})
    low, high = 0, len(points) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if sum(weights(points[middle])) >= c else (low, middle)
    above, below = sum(weights(points[low])), sum(weights(points[high]))
    if above == below:
        return weights(points[low])
    return weights(points[low] + (points[high] - points[low]) * (above - c) / (above - below))


def project(front: Front, x: np.ndarray, **options: Any) -> np.ndarray:
    return front(regmax.project_capped_simplex, x, **options)


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, float]:
    x = draw(scores(rows=1))[0].astype(np.float64)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    upper = draw(st.sampled_from((np.ones(len(x)), rng.random(len(x)), rng.choice([0, 0.5, 2], len(x)))))
    share = draw(st.sampled_from((0.0, 0.1, 0.5, 0.9, 1.0)))
    total = min(share * float(upper.sum()), float(sum(map(Fraction, upper.tolist()))))
    return x, upper, total


@BOTH
@given(problem=problems(), offset=st.sampled_from((0.0, 1e3, -1e6)))
def test_it_is_exact_to_rounding(front: Front, problem: Any, offset: float) -> None:
    x, upper, total = problem
    x = x + offset
    found = project(front, x, upper=upper, total=total)
    expected = exact(x, upper, total)
    unit = 8 * np.finfo(float).eps * max(1.0, float(upper.max()))
    assert max(abs(Fraction(a) - b) for a, b in zip(found.tolist(), expected, strict=True)) <= unit
    assert (found >= 0).all()
    assert (found <= upper).all()


@BOTH
def test_long_rows_are_exact_to_rounding(front: Front) -> None:
    rng = np.random.default_rng(0)
    x, upper = rng.normal(size=5000), 0.1 * rng.random(5000)
    total = float(upper.sum()) * 0.7
    found = project(front, x, upper=upper, total=total)
    expected = exact(x, upper, total)
    assert max(abs(Fraction(a) - b) for a, b in zip(found.tolist(), expected, strict=True)) < 1e-16


@BOTH
def test_an_independent_solver_agrees(front: Front) -> None:
    rng = np.random.default_rng(0)
    x, upper, total = rng.normal(size=(6, 7)), rng.random((6, 7)), np.array([0.2, 0.7, 1.0, 1.5, 0.0, 2.0])
    y = cp.Variable(x.shape)
    constraints = [y >= 0, y <= upper, cp.sum(y, axis=1) == total]
    cp.Problem(cp.Minimize(cp.sum_squares(y - x)), constraints).solve(solver=cp.CLARABEL, **TOLERANCES)
    found = project(front, x, upper=upper, total=total[:, None])
    np.testing.assert_allclose(found, y.value, atol=1e-8)
    np.testing.assert_array_equal(project(front, x, upper=upper, total=total), found)


@BOTH
def test_without_active_caps_it_is_the_projection_onto_the_simplex(front: Front) -> None:
    x = np.random.default_rng(0).normal(size=(5, 9))
    expected = front(regmax.project_simplex, x)
    for upper in (1.0, np.inf):
        np.testing.assert_allclose(project(front, x, upper=upper), expected, atol=1e-15)
    doubled = project(front, 2 * x, upper=np.inf, total=2.0)
    np.testing.assert_allclose(doubled, 2 * expected, atol=1e-15)


@BOTH
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_types_and_dims(front: Front, dtype: Any) -> None:
    x = np.random.default_rng(0).normal(size=(3, 6, 2)).astype(dtype)
    found = project(front, x, dim=1, total=2)
    assert found.dtype == dtype
    rows = np.moveaxis(x, 1, -1)
    expected = np.moveaxis(project(front, rows.astype(np.float64), total=2.0), -1, 1)
    np.testing.assert_allclose(found, expected.astype(dtype), rtol=2 * np.finfo(dtype).eps)


@BOTH
def test_deleted_scores_nan_and_infinity(front: Front) -> None:
    x = np.array([[0.5, -np.inf, 0.2], [np.nan, 0.0, 1.0], [np.inf, 0.0, 1.0], [1e308, -1e308, 0.0]])
    found = project(front, x)
    np.testing.assert_allclose(found[0], [0.65, 0, 0.35])
    assert np.isnan(found[1:3]).all()
    np.testing.assert_array_equal(found[3], [1, 0, 0])
    assert project(front, np.zeros((2, 0)), total=0.0).shape == (2, 0)


def test_a_choice_of_k_has_k_ones_if_scores_are_far_apart() -> None:
    x = np.array([0.0, 5.0, 2.5, -4.0, 9.0])
    np.testing.assert_array_equal(regmax.project_capped_simplex(x, total=3), [0, 1, 1, 0, 1])


def test_gradients_of_scores_caps_and_total() -> None:
    rng = np.random.default_rng(3)
    x = torch.tensor(rng.normal(size=(8, 6)), requires_grad=True)
    upper = torch.tensor(0.2 + 0.4 * rng.random((8, 6)), requires_grad=True)
    total = torch.tensor(0.5 + 0.5 * rng.random((8, 1)), requires_grad=True)

    def call(x: torch.Tensor, upper: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        return regmax.project_capped_simplex(x, upper=upper, total=total)

    y = call(x, upper, total)
    free = (y > 0) & (y < upper)
    assert bool((free.sum(-1) > 1).any())
    assert bool((y == upper).any())
    assert torch.autograd.gradcheck(call, (x, upper, total), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(call, (x, upper, total))


def test_gradients_broadcast_and_work_under_transforms() -> None:
    x = torch.randn(4, 5, dtype=torch.float64)
    cap = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    v = torch.randn(4, 5, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((regmax.project_capped_simplex(x, upper=cap) * v).sum(), cap)

    def value(cap: torch.Tensor) -> torch.Tensor:
        return (regmax.project_capped_simplex(x, upper=cap) * v).sum()

    torch.testing.assert_close(torch.func.grad(value)(cap.detach()), gradient)
    step = 1e-6
    difference = (value(cap.detach() + step) - value(cap.detach() - step)) / (2 * step)
    torch.testing.assert_close(gradient, difference, atol=1e-6, rtol=1e-6)
    rows = torch.func.vmap(lambda row: regmax.project_capped_simplex(row, upper=0.4))(x)
    torch.testing.assert_close(rows, regmax.project_capped_simplex(x, upper=0.4), atol=0, rtol=0)
    compiled = torch.compile(lambda x: regmax.project_capped_simplex(x, upper=0.4), backend="eager")
    torch.testing.assert_close(compiled(x), rows, atol=0, rtol=0)


def test_a_vertex_has_a_finite_gradient() -> None:
    x = torch.tensor([5.0, 0.0, -5.0], requires_grad=True)
    regmax.project_capped_simplex(x).square().sum().backward()
    assert x.grad.tolist() == [0, 0, 0]


@BOTH
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"upper": 0.2}, ValueError, r"Got a row with sum 0.6 and total 1: the problem has no solution"),
        ({"upper": np.array([1.0, -0.1, 1.0])}, ValueError, r"upper=...\)` must be non-negative"),
        ({"upper": float("nan")}, ValueError, r"upper=...\)` must be non-negative"),
        ({"total": -1.0}, ValueError, r"total=...\)` must be non-negative and finite"),
        ({"total": 4.0}, ValueError, r"Got a row with sum 3 and total 4"),
        ({"upper": np.ones(4)}, ValueError, r"must broadcast to x's shape \(2, 3\). Got \(4,\)"),
        ({"total": np.ones(3)}, ValueError, r"must broadcast against the scores with size 1 along `dim`"),
        ({"total": "much"}, TypeError, r"must be a number or an array. Got str"),
    ],
)
def test_bad_arguments_raise_in_one_line(
    front: Front, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        project(front, np.zeros((2, 3)), **options)
    assert "\n" not in str(caught.value)


def test_bounds_that_reach_the_total_up_to_rounding_are_feasible() -> None:
    for upper in (np.full(3, 1 / 3), np.full(10, 0.1), np.full(7, 1 / 7)):
        x = np.arange(len(upper)) * 0.1
        np.testing.assert_allclose(regmax.project_capped_simplex(x, upper=upper), upper, rtol=1e-15)
        half = torch.tensor(upper, dtype=torch.float32)
        torch.testing.assert_close(regmax.project_capped_simplex(torch.zeros(len(upper)), upper=half), half)
    with pytest.raises(ValueError, match="sum 0 and total 1"):
        regmax.project_capped_simplex(np.full(3, -np.inf))
