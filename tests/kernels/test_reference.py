"""The specification against exact arithmetic: rationals, and 50 digits for the mappings that are not rational."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import exact
import mpmath
import numpy as np
import pytest
from exact_rows import KINDS, THETAS, row

import regmax
from regmax.kernels import reference

SEED = 9
RATIONAL = [(kernel, theta) for kernel in exact.RATIONAL for theta in THETAS[kernel]]
LENGTHS = {"float64": (1, 3, 11, 40), "float32": (2, 6)}
SMOOTH = [
    ("softmax", None),
    ("sqpnormmax", 1.01),
    ("sqpnormmax", 1.3),
    ("sqpnormmax", 1.5),
    ("sqpnormmax", 2.0),
    ("entmax", 1.0),
    ("entmax", 1.000001),
    ("entmax", 1.01),
    ("entmax", 1.3),
    ("entmax", 1.5),
    ("entmax", 2.0),
]


def units(errors: Any, scale: Any) -> float:
    """Errors in units in the last place of `scale`."""
    return max(map(float, errors)) / float(np.spacing(scale))


@pytest.mark.pairs
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("kernel", "theta"), RATIONAL)
def test_piecewise_linear_mappings_are_exact_and_rounded_once(
    kernel: str, theta: float | None, kind: str
) -> None:
    for dtype, lengths in LENGTHS.items():
        for d in lengths:
            x = row(kind, SEED, d, theta, np.dtype(dtype).type)
            y = reference.argmax(kernel, x.astype(dtype)[None], None, theta)[0]
            expected = np.array([float(weight) for weight in exact.solve(kernel, x.tolist(), theta)])
            np.testing.assert_array_equal(y, expected.astype(dtype))


@pytest.mark.pairs
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("kernel", "theta"), SMOOTH)
def test_smooth_mappings_are_rounded_once(kernel: str, theta: float | None, kind: str) -> None:
    for dtype, d in (("float64", 3), ("float64", 7), ("float32", 5)):
        x = row(kind, SEED, d, theta, np.dtype(dtype).type)
        y = reference.argmax(kernel, x.astype(dtype)[None], None, theta)[0]
        expected = exact.solve(kernel, x.tolist(), theta)
        errors = [abs(mpmath.mpf(float(ours)) - weight) for ours, weight in zip(y, expected, strict=True)]
        assert units(errors, y.max()) < 0.51
        np.testing.assert_array_equal(y > 0, np.array([float(w) for w in expected]).astype(dtype) > 0)


LONG = [
    ("sparsemax", None, "flat", 3000),
    ("sparsemax", None, "tent", 3000),
    ("fusedmax", 1e-4, "peak", 3000),
    ("fusedmax", 0.1, "normal", 3000),
    ("fusedmax", 0.1, "ramp", 3000),
    ("fusedmax", 0.1, "flat", 3000),
    ("oscarmax", 1 / 3000, "ramp", 3000),
    ("oscarmax", 1 / 3000, "flat", 3000),
    ("prox_tv1d", 1.0, "normal", 3000),
    ("prox_tv1d", 0.1, "sawtooth", 3000),
    ("prox_oscar", 1 / 3000, "normal", 3000),
]


@pytest.mark.parametrize(("kernel", "theta", "kind", "d"), LONG)
def test_long_rows_are_exact(kernel: str, theta: float | None, kind: str, d: int) -> None:
    x = row(kind, SEED, d, theta, np.float64)
    y = reference.argmax(kernel, x[None], None, theta)[0]
    expected = exact.solve(kernel, x.tolist(), theta)
    np.testing.assert_array_equal(y, [float(weight) for weight in expected])


@pytest.mark.pairs
@pytest.mark.parametrize("fill", [-1e16, -1e18, -1e300, -1e308, np.finfo(np.float64).min])
@pytest.mark.parametrize(("kernel", "theta"), RATIONAL)
def test_very_low_scores_are_scores(kernel: str, theta: float | None, fill: float) -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        x = np.where(rng.random(9) < 0.4, fill, rng.normal(size=9))
        y = reference.argmax(kernel, x[None], None, theta)[0]
        np.testing.assert_array_equal(y, [float(w) for w in exact.solve(kernel, x.tolist(), theta)])


def test_low_scores_that_were_wrong_once() -> None:
    row_32 = np.float32([[-0.4012, -1e16, -0.0065, 0.0104]])
    y = reference.argmax("fusedmax", row_32, theta=0.25)[0]
    assert y[2] == y[3] == 0.5
    np.testing.assert_allclose(
        reference.argmax("sparsemax", np.array([[1, -1e308, -1e308, 0.9]])), [[0.55, 0, 0, 0.45]]
    )
    least = np.full((1, 4), np.finfo(np.float64).min)
    np.testing.assert_array_equal(reference.argmax("fusedmax", least, theta=0.1), np.full((1, 4), 0.25))


def test_scores_in_tenths_fuse_as_they_do_on_paper() -> None:
    np.testing.assert_array_equal(reference.argmax("fusedmax", np.array([[0.1, 0.0, 0.2]]), theta=0.1), 1 / 3)


@pytest.mark.pairs
@pytest.mark.parametrize("gamma", [0.1, 3.0, 1e-3, 1e-300])
@pytest.mark.parametrize(
    ("kernel", "theta"), [*RATIONAL, ("softmax", None), ("sqpnormmax", 1.5), ("entmax", 1.5)]
)
def test_gamma_divides_the_scores_exactly(kernel: str, theta: float | None, gamma: float) -> None:
    x = np.random.default_rng(5).normal(size=7) * min(1, gamma * 1e3)
    y = reference.argmax(kernel, x[None], None, theta, gamma=gamma)[0]
    expected = [float(weight) for weight in exact.solve(kernel, x.tolist(), theta, gamma)]
    np.testing.assert_allclose(y, expected, rtol=0 if kernel in exact.RATIONAL else 1e-15)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_small_gamma_deletes_no_score_and_makes_none_infinite(dtype: str) -> None:
    least = np.finfo(dtype).min
    x = np.array([[0.0, least, 0.05]], dtype)
    # Deleted, the middle score would leave two neighbours, which fuse: 0.5, 0, 0.5.
    y = reference.argmax("fusedmax", x, theta=0.1, gamma=0.25)
    np.testing.assert_allclose(y, [[0.4, 0.0, 0.6]], rtol=1e-6)
    z = reference.argmax("prox_tv1d", x, theta=0.1, gamma=0.25)
    np.testing.assert_array_equal(z[0, 1], least)
    assert np.isfinite(z).all()


@pytest.mark.pairs
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("kernel", "theta"), [*RATIONAL, *SMOOTH])
def test_jacobian_products_are_exact(kernel: str, theta: float | None, kind: str) -> None:
    number = Fraction if kernel in exact.RATIONAL else mpmath.mpf
    for dtype, lengths in LENGTHS.items():
        for d in lengths[:3]:
            x = row(kind, SEED, d, theta, np.dtype(dtype).type).astype(dtype)
            y = reference.argmax(kernel, x[None], None, theta)
            v = np.random.default_rng([d, SEED]).normal(size=(1, d)).astype(dtype)
            product = reference.jacobian_product(kernel, y, v, None, theta)[0]
            weights = [number(float(weight)) for weight in y[0]]
            expected = exact.product(kernel, weights, v[0].astype(float).tolist(), theta)
            if number is Fraction:
                np.testing.assert_array_equal(product, np.array([float(p) for p in expected]).astype(dtype))
            else:
                errors = [abs(mpmath.mpf(float(a)) - b) for a, b in zip(product, expected, strict=True)]
                norm = 1 / (theta - 1) if kernel == "sqpnormmax" and theta else 1.0
                assert units(errors, np.dtype(dtype).type(norm * np.abs(v).max())) < 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_judge_satisfies_the_conditions_of_optimality(kind: str) -> None:
    for d in (1, 2, 9, 40):
        x = [Fraction(score) for score in row(kind, SEED, d, 0.1, np.float64)]
        for lam in (Fraction(0), Fraction(1, 10), Fraction(5)):
            assert exact.is_total_variation(x, lam, exact.total_variation(x, lam))
        assert exact.is_isotonic(x, exact.decreasing(x))
    assert not exact.is_total_variation(
        [Fraction(1), Fraction(0)], Fraction(1, 4), [Fraction(1), Fraction(0)]
    )
    assert not exact.is_isotonic([Fraction(0), Fraction(1)], [Fraction(0), Fraction(1)])


def test_groups_are_read_off_the_weights() -> None:
    y = reference.argmax("fusedmax", np.array([[0.1, 0.0, 0.2], [1.0, -1.0, 1.0]]), theta=0.1)
    assert regmax.groups(y).ids.tolist() == [[1, 1, 1], [1, 0, 2]]
    clusters = regmax.groups(
        reference.argmax("oscarmax", np.array([[1.0, -1.0, 1.0, 0.75]]), theta=1 / 16), contiguous=False
    )
    assert clusters.ids.tolist() == [[1, 0, 1, 2]]
