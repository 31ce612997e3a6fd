"""The paper's statements about the framework: Figure 2, the special cases, and the formulas of Omega."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from fronts import Front
from table import Entry

import regmax

T = np.linspace(-4, 4, 161)
LINE = np.stack([T, np.zeros_like(T)], axis=1)  # the scores [t, 0] of Figure 2


def test_softmax_is_a_sigmoid_and_its_max_softplus(front: Front) -> None:
    np.testing.assert_allclose(front(regmax.softmax, LINE)[:, 0], 1 / (1 + np.exp(-T)), atol=1e-15)
    soft = front(lambda x: regmax.regularized_max(regmax.NegativeEntropy(), x), LINE)
    np.testing.assert_allclose(soft, np.log1p(np.exp(T)), atol=1e-14)


def test_sparsemax_is_a_clipped_line_and_its_max_a_huber_ramp(front: Front) -> None:
    np.testing.assert_allclose(front(regmax.sparsemax, LINE)[:, 0], np.clip((T + 1) / 2, 0, 1), atol=1e-15)
    ramp = front(lambda x: regmax.regularized_max(regmax.SquaredNorm(), x), LINE)
    y = np.clip((T + 1) / 2, 0, 1)
    np.testing.assert_allclose(ramp, T * y - (y**2 + (1 - y) ** 2) / 2, atol=1e-14)


def test_fusedmax_waits_for_a_difference_of_two_lam(front: Front) -> None:
    """In two dimensions y_1 - y_2 = clip(soft-threshold(t, 2 lam), -1, 1)."""
    for lam in (0.1, 0.25, 1.0):
        difference = np.clip(np.sign(T) * np.maximum(np.abs(T) - 2 * lam, 0), -1, 1)
        np.testing.assert_allclose(
            front(regmax.fusedmax, LINE, lam=lam)[:, 0], (1 + difference) / 2, atol=1e-14
        )


def test_oscarmax_is_fusedmax_in_two_dimensions(front: Front) -> None:
    """max(a, b) = (a + b + |a - b|) / 2, and a + b = 1: OSCAR's lam is twice the fused lasso's."""
    for lam in (0.05, 0.3):
        np.testing.assert_allclose(
            front(regmax.oscarmax, LINE, lam=2 * lam), front(regmax.fusedmax, LINE, lam=lam), atol=1e-15
        )


def test_sparse_mappings_reach_zero_and_one_exactly(entry: Entry, front: Front) -> None:
    y = front(entry, np.array([[8.0, 0.0], [-8.0, 0.0]]))
    if entry.sparse:
        np.testing.assert_array_equal(y, [[1, 0], [0, 1]])
    else:
        assert np.all((y > 0) & (y < 1))


def test_sqpnormmax_is_smoother_than_sparsemax_near_the_corner(front: Front) -> None:
    """The zoomed box of Figure 2: sparsemax meets 1 with a kink, sqpnormmax smoothly."""
    x = np.array([[0.97, 0.0], [1.03, 0.0]])
    assert front(regmax.sqpnormmax, x, p=1.5)[0, 0] > front(regmax.sparsemax, x)[0, 0]
    np.testing.assert_array_equal(front(regmax.sqpnormmax, x, p=1.5)[1], [1, 0])


@pytest.mark.parametrize(
    ("mapping", "parameters"),
    [("fusedmax", {"lam": 0.0}), ("oscarmax", {"lam": 0.0}), ("sqpnormmax", {"p": 2.0})],
)
def test_sparsemax_is_a_special_case(front: Front, mapping: str, parameters: dict[str, float]) -> None:
    x = np.random.default_rng(0).normal(size=(50, 13))
    expected = front(regmax.sparsemax, x)
    y = front(getattr(regmax, mapping), x, **parameters)
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(y == 0, expected == 0)


def test_large_p_and_small_p_are_different_mappings(front: Front) -> None:
    """sqpnormmax becomes smoother as p decreases: the support cannot shrink."""
    x = np.random.default_rng(1).normal(size=(30, 9))
    sizes = [np.sum(front(regmax.sqpnormmax, x, p=p) > 0, axis=-1) for p in (2.0, 1.7, 1.4, 1.2)]
    for smaller, larger in pairwise(sizes):
        assert np.all(smaller <= larger)
    assert np.any(sizes[0] < sizes[-1])


def plain_values(y: np.ndarray, lam: float, p: float) -> dict[str, float]:
    """Omega(y) of one row, written as in the paper."""
    d, half = len(y), sum(a * a for a in y) / 2
    return {
        "NegativeEntropy": sum(a * np.log(a) for a in y if a > 0),
        "SquaredNorm": half,
        "FusedLasso": half + lam * sum(abs(y[i + 1] - y[i]) for i in range(d - 1)),
        "Oscar": half + lam * sum(max(abs(y[i]), abs(y[j])) for j in range(d) for i in range(j)),
        "OscarComposition": half + lam * sum(max(abs(y[i]), abs(y[j])) for j in range(d) for i in range(j)),
        "SquaredPNorm": sum(a**p for a in y) ** (2 / p) / 2,
    }


@pytest.mark.parametrize("d", [1, 2, 7])
def test_values_are_the_papers_formulas(front: Front, d: int) -> None:
    lam, p = 0.3, 1.4
    y = np.random.default_rng(d).dirichlet(np.ones(d), size=(2, 3))
    if d > 1:
        y[0, 0] = np.eye(d)[1]
    omegas = [
        regmax.NegativeEntropy(),
        regmax.SquaredNorm(),
        regmax.FusedLasso(lam),
        regmax.Oscar(lam),
        regmax.OscarComposition(lam),
        regmax.SquaredPNorm(p),
    ]
    for omega in omegas:
        expected = [[plain_values(row, lam, p)[type(omega).__name__] for row in rows] for rows in y]
        np.testing.assert_allclose(front(omega.value, y), expected, atol=1e-14)


def test_the_named_function_is_the_argmax_of_its_regularizer(entry: Entry, front: Front) -> None:
    x = np.random.default_rng(2).normal(size=(3, 4, 6))
    mask = np.random.default_rng(3).random(x.shape) < 0.8
    for dim in (0, 1, -1):
        y = front(lambda a, mask, dim=dim: entry(a, dim, gamma=0.7, mask=mask), x, mask=mask)
        ours = front(
            lambda a, mask, dim=dim: regmax.regularized_argmax(entry.omega, a, dim, gamma=0.7, mask=mask),
            x,
            mask=mask,
        )
        np.testing.assert_array_equal(ours, y)
        top = front(
            lambda a, mask, dim=dim: regmax.regularized_max(entry.omega, a, dim, gamma=0.7, mask=mask),
            x,
            mask=mask,
        )
        assert top.shape == tuple(np.delete(x.shape, dim))


def test_gamma_scales_scores(entry: Entry, front: Front) -> None:
    x = np.random.default_rng(4).normal(size=(5, 8))
    np.testing.assert_allclose(front(entry, x, gamma=0.3), front(entry, x / 0.3), rtol=0, atol=1e-14)

    def maximum(scores: np.ndarray, gamma: float) -> np.ndarray:
        return front(lambda a: regmax.regularized_max(entry.omega, a, gamma=gamma), scores)

    np.testing.assert_allclose(maximum(x, 0.3), 0.3 * maximum(x / 0.3, 1.0), atol=1e-13)


def test_the_composition_is_the_papers_and_not_the_optimum(front: Front) -> None:
    """P_simplex(prox_OSCAR(x)): not invariant to constants, and, as the errata state, not optimal."""
    x, lam = np.random.default_rng(5).normal(size=(40, 6)), 0.1
    omega = regmax.OscarComposition(lam)
    weights = lam * np.arange(5, -1, -1.0)
    composed = front(regmax.project_simplex, front(regmax.prox_owl, x, weights))
    y = front(lambda a: regmax.regularized_argmax(omega, a), x)
    np.testing.assert_allclose(y, composed, rtol=0, atol=1e-14)
    gap = front(lambda a, b: regmax.duality_gap(omega, a, b), x, y)
    assert np.all(gap > -1e-14)
    assert np.mean(gap > 1e-4) > 0.3
    moved = front(lambda a: regmax.regularized_argmax(omega, a), x + 1)
    assert np.max(np.abs(moved - y)) > 0.05


def test_regularizers_are_values() -> None:
    assert regmax.FusedLasso(lam=0.1) == regmax.FusedLasso(0.1)
    assert hash(regmax.Oscar(0.1)) == hash(regmax.Oscar(0.1))
    assert regmax.FusedLasso(0.1) != regmax.FusedLasso(0.2)
    assert repr(regmax.SquaredPNorm(1.5)) == "SquaredPNorm(p=1.5)"
    with pytest.raises(AttributeError, match="lam"):
        regmax.FusedLasso(0.1).lam = 0.2  # type: ignore[misc]
