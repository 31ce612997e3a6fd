"""The sweep over random rows finds nothing wrong with the specification, and finds what is wrong with others."""

from __future__ import annotations

import digits_sweep
import exact
import exact_sweep
import numpy as np
import pytest
from exact_cases import Case
from fronts import forced_tier

from regmax.kernels import native, reference


def by_reference(case: Case) -> np.ndarray:
    return reference.argmax(case.kernel, case.x[None], case.keep[None], case.theta)


def test_the_specification_has_no_fault() -> None:
    rng = np.random.default_rng(2)
    for case in (exact_sweep.draw(rng, longest=60) for _ in range(300)):
        assert exact_sweep.judge(case, by_reference(case)) == []
        if case.kernel in exact.RATIONAL:
            scores = case.x[case.keep].astype(float).tolist()
            expected = [float(weight) for weight in exact.solve(case.kernel, scores, case.theta)]
            np.testing.assert_array_equal(case.weights[case.keep], expected)


@pytest.mark.skipif(not native.available(), reason="the core was not built")
@pytest.mark.parametrize("tier", exact_sweep.TIERS)
def test_no_tier_of_the_core_has_a_fault(tier: str | None) -> None:
    rng = np.random.default_rng(4)
    for case in (exact_sweep.draw(rng, longest=200) for _ in range(250)):
        assert exact_sweep.judge(case, exact_sweep.by_core(case, tier)) == [], case.name


@pytest.mark.skipif(not native.available(), reason="the core was not built")
@pytest.mark.parametrize("tier", exact_sweep.TIERS)
@pytest.mark.parametrize(
    ("kernel", "theta", "kind", "seed", "d", "dtype"),
    [
        ("entmax", 1.9, "peak", 0, 4, "float32"),
        ("entmax", 1.9, "peak", 0, 1022, "float64"),
        ("entmax", 1.25, "stairs", 0, 1020, "float32"),
        ("sqpnormmax", 1.9, "flat", 368885720, 424, "float64"),
        ("sqpnormmax", 1.05, "flat", 1554345207, 807, "float64"),
        ("sqpnormmax", 1.25, "geometric", 1182525527, 661, "float64"),
        ("entmax", 1.0, "ramp", 1895298522, 1375, "float64"),
        ("sparsemax", None, "tiny", 1744777027, 41, "float32"),
        ("prox_tv1d", 3.0, "filled with -1e37", 1037001601, 17, "float64"),
        ("sparsemax", None, "sawtooth", 1316442427, 536, "float32"),
        ("oscarmax", 0.0, "sawtooth", 3729991, 522, "float32"),
        ("sqpnormmax", 1.5, "at the threshold", 1876085698, 2357, "float32"),
        ("sqpnormmax", 1.5, "tiny", 1818837918, 146, "float64"),
        ("sqpnormmax", 1.5, "tiny", 1200289328, 63, "float32"),
        ("sqpnormmax", 1.5, "ties", 1451677778, 59, "float32"),
        ("sqpnormmax", 1.8, "filled with -1e16", 1001803609, 440, "float32"),
        ("sqpnormmax", 1.03, "flat", 1654756235, 1129, "float32"),
        ("entmax", 1.3, "stairs", 1955926279, 1055, "float32"),
        ("entmax", 1.15, "peak", 1924547107, 2531, "float32"),
        ("entmax", 4 / 3, "geometric", 1798064997, 328, "float32"),
        ("entmax", 1.4, "peak", 2116648125, 63, "float32"),
        ("entmax", 1.9, "offset", 1971968279, 11, "float32"),
        ("entmax", 1.5, "flat", 1257667550, 9, "float32"),
        ("sqpnormmax", 1.5, "tiny", 178126735, 259, "float32"),
        ("sqpnormmax", 1.5, "segments", 1870004328, 16, "float32"),
        ("sqpnormmax", 1.5, "alternating", 745191731, 136, "float32"),
        ("sqpnormmax", 1.5, "tiny", 583233491, 273, "float64"),
        ("sqpnormmax", 1.5, "filled with -1e37", 835492218, 10, "float32"),
        ("entmax", 1.5, "filled with -1e16", 1620315778, 11, "float32"),
    ],
)
def test_many_small_numbers_do_not_move_a_large_one(
    tier: str | None, kernel: str, theta: float | None, kind: str, seed: int, d: int, dtype: str
) -> None:
    """Their rounding errors add up: up to 60 units in the last place of the largest weight."""
    case = exact_sweep.made(kernel, theta, kind, seed, np.ones(d, bool), np.dtype(dtype))
    assert exact_sweep.judge(case, exact_sweep.by_core(case, tier)) == []


@pytest.mark.skipif(not native.available(), reason="the core was not built")
@pytest.mark.parametrize("tier", exact_sweep.TIERS)
def test_a_weight_that_is_about_to_vanish(tier: str | None) -> None:
    """The third score is just below the threshold: Newton's step is too long there."""
    x = np.array([[4.548394, 3.5270293, 3.4724352, 2.33516]], np.float32)
    expected = reference.argmax(
        "entmax", x.astype(np.float64), np.ones(x.shape, bool), float(np.float32(1.9))
    )
    with forced_tier(tier):
        y = native.argmax("entmax", x, None, float(np.float32(1.9)))
    np.testing.assert_allclose(y, expected, rtol=0, atol=2.4e-7)


@pytest.mark.skipif(not native.available(), reason="the core was not built")
@pytest.mark.parametrize("tier", exact_sweep.TIERS)
@pytest.mark.parametrize(
    ("kernel", "theta", "kind", "seed", "d"),
    [
        ("fusedmax", 0.05, "flat", 761151934, 1581),
        ("oscarmax", 0.125, "filled with -1e18", 1329422304, 49),
        ("sqpnormmax", 1.01, "normal", 1702152026, 74),
    ],
)
def test_weights_have_their_own_last_digits(
    tier: str | None, kernel: str, theta: float, kind: str, seed: int, d: int
) -> None:
    """They are differences of pooled scores, which are larger, and powers, which may be subnormal."""
    case = exact_sweep.made(kernel, theta, kind, seed, np.ones(d, bool), np.dtype("float32"))
    assert exact_sweep.judge(case, exact_sweep.by_core(case, tier)) == []


@pytest.mark.skipif(not native.available(), reason="the core was not built")
@pytest.mark.parametrize("tier", exact_sweep.TIERS)
@pytest.mark.parametrize(("kernel", "theta"), [("sqpnormmax", 1.01), ("sqpnormmax", 1.1), ("entmax", 1.05)])
def test_weights_about_the_least_number_are_rounded_once(tier: str | None, kernel: str, theta: float) -> None:
    """Half the least number is 2^-150: the tail's weights are above and below it."""
    a = theta - 1
    gaps = (1 - 2.0 ** (-np.linspace(145, 153, 61) * a)) / (a if kernel == "entmax" else 1)
    for several in (1, 3):  # tops: the sum of the powers, by which they are divided
        x = np.r_[np.zeros(several), -gaps].astype(np.float32)
        expected = reference.argmax(kernel, x[None].astype(np.float64), np.ones((1, x.size), bool), theta)
        with forced_tier(tier):
            y = native.argmax(kernel, np.tile(x, (8, 1)), None, theta)
        np.testing.assert_array_equal(y > 0, np.tile(expected.astype(np.float32) > 0, (8, 1)))


@pytest.mark.pairs
@pytest.mark.skipif(not native.available(), reason="the core was not built")
@pytest.mark.parametrize("tier", exact_sweep.TIERS)
@pytest.mark.parametrize(
    ("kernel", "theta"),
    [("sqpnormmax", 1.25), ("sqpnormmax", 1.5), ("entmax", 1.25), ("entmax", 1.5), ("entmax", 1.75)],
)
@pytest.mark.parametrize("bits", range(18, 25))
def test_a_score_just_above_the_threshold_has_weight(
    tier: str | None, kernel: str, theta: float, bits: int
) -> None:
    """The top score takes nearly all: the threshold is one below it, or 1 / (alpha - 1)."""
    gap = (1 - 2.0**-bits) / (theta - 1 if kernel == "entmax" else 1)
    x = np.array([0, -gap, -2 * gap], np.float32)
    expected = reference.argmax(kernel, x[None].astype(np.float64), np.ones((1, 3), bool), theta)
    with forced_tier(tier):
        y = native.argmax(kernel, np.tile(x, (8, 1)), None, theta)
    np.testing.assert_array_equal(y > 0, np.tile(expected > 0, (8, 1)))


def test_faults_are_found() -> None:
    rng = np.random.default_rng(3)
    cases = [case for case in (exact_sweep.draw(rng, 60) for _ in range(200)) if case.kernel == "fusedmax"]
    for case in cases:
        y = by_reference(case)
        largest = y.argmax()
        y[0, largest] += 8 * np.spacing(y[0, largest])
        assert "values" in exact_sweep.judge(case, y)
    assert len(cases) > 20


def test_the_sweep_counts_by_kernel_and_type(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(exact_sweep, "by_core", lambda case, tier: by_reference(case))
    assert exact_sweep.main(["--rows", "20", "--longest", "9", "--only", "core"]) == 0
    assert "20 rows, seed 0: 0 faults" in capsys.readouterr().out
    monkeypatch.setattr(exact_sweep, "by_core", lambda case, tier: 0 * by_reference(case))
    assert exact_sweep.main(["--rows", "20", "--longest", "9", "--only", "core"]) == 1
    assert "core, any tier sqpnormmax float32 values" in capsys.readouterr().out


@pytest.mark.skipif(not native.available(), reason="the core was not built")
@pytest.mark.parametrize("tier", exact_sweep.TIERS)
def test_hundreds_of_small_weights_beside_large_ones(tier: str | None) -> None:
    """The largest weight was off by 18 units in the last place."""
    x = np.r_[0.5 ** np.arange(1, 9), np.zeros(600)].astype(np.float32)
    expected = reference.argmax("sqpnormmax", x[None].astype(float), None, 1.5)
    with forced_tier(tier):
        y = native.argmax("sqpnormmax", x[None], None, 1.5)
    np.testing.assert_allclose(y, expected, rtol=0, atol=4 * np.spacing(np.float32(expected.max())))


@pytest.mark.skipif(not native.available(), reason="the core was not built")
@pytest.mark.parametrize("tier", digits_sweep.TIERS)
@pytest.mark.parametrize("seed", [53, 113, 326, 481, 557, 866])
def test_rows_of_float32_are_those_of_float64(tier: str | None, seed: int) -> None:
    """Of 4,000 rows 3 to 20 were off by 4.7 to 5.8 units: fusedmax and oscarmax in lanes, sqpnormmax in whole rows."""
    batch = digits_sweep.draw(np.random.default_rng(seed), longest=40)
    exact_weights = native.argmax(batch.kernel, batch.x.astype(np.float64), None, batch.theta)
    with forced_tier(tier):
        y = native.argmax(batch.kernel, batch.x, None, batch.theta)
    for fault, found in digits_sweep.faults(y, exact_weights).items():
        assert not found.any(), fault


@pytest.mark.skipif(not native.available(), reason="the core was not built")
def test_the_sweep_over_digits_counts_faults(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert digits_sweep.main(["--rows", "30000", "--longest", "60"]) == 0
    assert "seed 0: 0 faults" in capsys.readouterr().out
    argmax = native.argmax
    monkeypatch.setattr(
        native, "argmax", lambda kernel, x, *rest: argmax(kernel, x, *rest) * (1 + 1e-6 * (x.itemsize == 4))
    )
    assert digits_sweep.main(["--rows", "4000", "--longest", "60"]) == 1
    assert "values: " in capsys.readouterr().out
