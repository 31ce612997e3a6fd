"""The laws of every mapping, for every implementation: each law is one test over the table and hypothesis scores."""

from __future__ import annotations

from typing import Any

import certificates
import numpy as np
import pytest
import torch
from fronts import Front
from hypothesis import assume, given
from hypothesis import strategies as st
from points import pattern
from strategies import masked_scores, scores, seeds
from table import TABLE, Entry

import regmax

GAMMAS = st.sampled_from((0.5, 1.0, 4.0))
SMALL = st.sampled_from((1, 2, 3, 5, 8, 17))
# fusedmax depends on the order of the scores: neighbours can pull a score down.
ANY_ORDER = pytest.mark.parametrize("entry", [entry for entry in TABLE if not entry.positional], ids=str)


def rounding(entry: Entry, *xs: np.ndarray) -> float:
    """The rounding error of the weights, for scores of this size and this mapping's Lipschitz constant."""
    largest = max(float(np.abs(x).max(initial=0.0)) for x in xs)
    return 32 * float(np.finfo(xs[0].dtype).eps) * (1 + largest) / entry.beta


def norms(v: np.ndarray, order: float) -> np.ndarray:
    return np.linalg.norm(v, ord=order, axis=-1)


@given(x=scores(), gamma=GAMMAS)
def test_weights_lie_on_the_simplex(entry: Entry, front: Front, x: np.ndarray, gamma: float) -> None:
    y = front(entry, x, gamma=gamma)
    assert y.dtype == x.dtype
    assert y.shape == x.shape
    assert np.all(y >= 0)
    assert not np.any(np.signbit(y))
    np.testing.assert_allclose(
        y.sum(axis=-1, dtype=np.float64), 1, atol=8 * np.finfo(x.dtype).eps * np.sqrt(x.shape[1])
    )


@given(xm=masked_scores(), gamma=GAMMAS)
def test_masking_is_deleting(
    entry: Entry, front: Front, xm: tuple[np.ndarray, np.ndarray], gamma: float
) -> None:
    x, mask = xm
    y = front(entry, x, gamma=gamma, mask=mask)
    assert np.all(y[~mask] == 0)
    for row, keep, weights in zip(x, mask, y, strict=True):
        alone = front(entry, row[keep], gamma=gamma)
        np.testing.assert_allclose(weights[keep], alone, rtol=0, atol=rounding(entry, x))


@given(x=scores(), c=st.sampled_from((1.0, -3.0, 0.1, 100.0)))
def test_adding_a_constant_changes_nothing(entry: Entry, front: Front, x: np.ndarray, c: float) -> None:
    shifted = x + x.dtype.type(c)
    tolerance = rounding(entry, x, shifted)
    np.testing.assert_allclose(front(entry, shifted), front(entry, x), rtol=0, atol=tolerance)


@ANY_ORDER
@given(x=scores(), rng=seeds())
def test_permuting_scores_permutes_weights(
    entry: Entry, front: Front, x: np.ndarray, rng: np.random.Generator
) -> None:
    order = rng.permutation(x.shape[1])
    permuted, y = front(entry, x[:, order]), front(entry, x)
    np.testing.assert_allclose(permuted, y[:, order], rtol=0, atol=rounding(entry, x))


@given(x=scores())
def test_reversing_scores_reverses_weights(entry: Entry, front: Front, x: np.ndarray) -> None:
    reversed_, y = front(entry, x[:, ::-1].copy()), front(entry, x)
    np.testing.assert_allclose(reversed_, y[:, ::-1], rtol=0, atol=rounding(entry, x))


@ANY_ORDER
@given(x=scores())
def test_larger_scores_get_no_less_weight(entry: Entry, front: Front, x: np.ndarray) -> None:
    order = np.argsort(x, axis=-1)
    sorted_weights = np.take_along_axis(front(entry, x), order, axis=-1)
    assert np.all(np.diff(sorted_weights, axis=-1) >= -np.finfo(x.dtype).eps)


@given(x=scores(), rng=seeds(), gamma=GAMMAS)
def test_the_duality_gap_is_zero_at_the_argmax_and_grows_away_from_it(
    entry: Entry, front: Front, x: np.ndarray, rng: np.random.Generator, gamma: float
) -> None:
    """Strong convexity bounds it: the gap at any y' is at least gamma beta / 2 ||y' - y||^2."""

    def gap(weights: np.ndarray) -> np.ndarray:
        return front(lambda a, b: regmax.duality_gap(entry.omega, a, b, gamma=gamma), x, weights)

    y = front(entry, x, gamma=gamma)
    other = rng.dirichlet(np.full(x.shape[1], 0.3), size=len(x)).astype(x.dtype)
    size = (
        1 + entry.parameters.get("lam", 0) * x.shape[1]
    )  # the gap adds and subtracts numbers as large as this
    tolerance = rounding(entry, x) * gamma * size * np.sqrt(x.shape[1])
    np.testing.assert_allclose(gap(y), 0, atol=tolerance)
    assert np.all(gap(other) >= gamma * entry.beta / 2 * norms(other - y, entry.norm) ** 2 - tolerance)


@given(x=scores())
def test_a_certificate_proves_the_weights(entry: Entry, front: Front, x: np.ndarray) -> None:
    """The gap to a dual point that is read off the weights, by code that shares nothing with the library."""
    y = front(entry, x).astype(np.float64)
    y /= y.sum(axis=-1, keepdims=True)
    centred = x.astype(np.float64) - x.max(axis=-1, keepdims=True)
    gap = certificates.gap(entry.mapping, centred, y, np.ones(x.shape, dtype=bool), **entry.parameters)
    size = 1 + entry.parameters.get("lam", 0) * x.shape[1]  # the gap adds and subtracts numbers of this size
    np.testing.assert_allclose(gap, 0, atol=np.finfo(x.dtype).eps * size * (64 + x.shape[1]))


@given(x=scores(), rng=seeds(), gamma=GAMMAS, step=st.sampled_from((1e-4, 1e-2, 1.0)))
def test_argmax_is_the_gradient_of_max(
    entry: Entry, front: Front, x: np.ndarray, rng: np.random.Generator, gamma: float, step: float
) -> None:
    """0 <= max(x + u) - max(x) - <y, u> <= ||u||_*^2 / (2 gamma beta), exactly: max is convex and smooth."""

    def maximum(a: np.ndarray) -> np.ndarray:
        return front(lambda t: regmax.regularized_max(entry.omega, t, gamma=gamma), a)

    u = (step * rng.normal(size=x.shape)).astype(x.dtype)
    moved = x + u
    u = moved - x
    remainder = maximum(moved) - maximum(x) - np.sum(front(entry, x, gamma=gamma) * u, axis=-1)
    tolerance = rounding(entry, x, moved) * (1 + gamma) * np.sqrt(x.shape[1])
    assert np.all(remainder >= -tolerance)
    assert np.all(remainder <= norms(u, entry.dual_norm) ** 2 / (2 * gamma * entry.beta) + tolerance)


@given(x=scores(), rng=seeds(), gamma=GAMMAS, step=st.sampled_from((1e-3, 0.1, 1.0)))
def test_the_mapping_is_monotone_and_lipschitz(
    entry: Entry, front: Front, x: np.ndarray, rng: np.random.Generator, gamma: float, step: float
) -> None:
    moved = x + (step * rng.normal(size=x.shape)).astype(x.dtype)
    dx, dy = moved - x, front(entry, moved, gamma=gamma) - front(entry, x, gamma=gamma)
    tolerance = rounding(entry, x, moved) * np.sqrt(x.shape[1])
    inner, length = np.sum(dx * dy, axis=-1), norms(dy, entry.norm)
    assert np.all(inner >= gamma * entry.beta * length**2 - tolerance * (1 + norms(dx, 1)))
    assert np.all(length <= norms(dx, entry.dual_norm) / (gamma * entry.beta) + tolerance * x.shape[1])


def jacobian(entry: Entry, x: np.ndarray, **options: Any) -> np.ndarray:
    """J at one row of scores: the row is repeated, and each copy is backpropagated with one unit vector."""
    rows = torch.tensor(x).expand(x.size, x.size).clone().requires_grad_()
    entry(rows, **options).backward(torch.eye(x.size, dtype=rows.dtype))
    return rows.grad.numpy()


@given(x=scores(sizes=SMALL, rows=1), gamma=GAMMAS)
def test_the_jacobian_is_symmetric_positive_and_annihilates_constants(
    entry: Entry, torch_path: str, x: np.ndarray, gamma: float
) -> None:
    j = gamma * jacobian(entry, x[0], gamma=gamma)
    tolerance = 32 * np.finfo(x.dtype).eps / entry.beta
    np.testing.assert_allclose(j, j.T, rtol=0, atol=tolerance)
    np.testing.assert_allclose(j.sum(axis=1), 0, atol=tolerance * x.size)
    assert np.linalg.eigvalsh(j.astype(np.float64)).min() >= -tolerance * x.size


@given(seed=st.integers(0, 2**32 - 1), d=SMALL, gamma=GAMMAS)
def test_the_jacobian_equals_finite_differences(
    entry: Entry, torch_path: str, seed: int, d: int, gamma: float
) -> None:
    rng = np.random.default_rng(seed)
    x, v, h = rng.normal(size=d), rng.normal(size=d), 1e-6
    plus, minus = entry(x + h * v, gamma=gamma), entry(x - h * v, gamma=gamma)
    assume(np.array_equal(pattern(plus), pattern(minus)))
    product = jacobian(entry, x, gamma=gamma) @ v
    np.testing.assert_allclose(product, (plus - minus) / (2 * h), rtol=0, atol=1e-6 / entry.beta)


@given(x=scores(), other=st.sampled_from((0.0, 1e6, np.inf, np.nan)), rng=seeds())
def test_rows_do_not_influence_each_other(
    entry: Entry, front: Front, x: np.ndarray, other: float, rng: np.random.Generator
) -> None:
    """The bits of the first row's weights do not depend on the other rows."""
    rows = np.concatenate([x[:1], rng.normal(size=(12, x.shape[1])).astype(x.dtype)])
    disturbed = rows.copy()
    disturbed[1:] *= rng.normal(size=(12, 1))
    disturbed[1 + rng.integers(12)] = other
    y = front(entry, rows)
    assert np.array_equal(front(entry, disturbed)[0], y[0])
    np.testing.assert_allclose(front(entry, x)[0], y[0], rtol=0, atol=rounding(entry, x))
