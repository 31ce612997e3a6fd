"""The JavaScript mappings against the library, in float64, with the same zeros and the same ties."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from regmax.mappings import MAPPINGS
from regmax.plots import Setting, explorer

ROWS = 1100
MAPPINGS_JS = Path(explorer.__file__).with_name("mappings.js")
ROUNDING = 2.0**-50  # a few units in the last place of a weight near one
SIZES = (1, 2, 3, 5, 8, 17, 40, 64)
GENERIC: dict[str, Callable[..., np.ndarray]] = {
    "normal": lambda rng, d, lam: rng.normal(size=d),
    "flat": lambda rng, d, lam: 0.01 * rng.normal(size=d),
    "peaked": lambda rng, d, lam: 10 * rng.normal(size=d),
    "segments": lambda rng, d, lam: np.repeat(rng.normal(size=d), 5)[:d],
    "constant": lambda rng, d, lam: np.full(d, rng.normal()),
}
# Scores that equal thresholds exactly, so that rounding decides.
KINKS: dict[str, Callable[..., np.ndarray]] = {
    "ties": lambda rng, d, lam: rng.integers(0, 3, size=d) / 2,
    "multiples of lam": lambda rng, d, lam: lam * rng.integers(-8, 9, size=d),
    "ramp": lambda rng, d, lam: lam * np.arange(d) * rng.integers(-2, 3),
    "sawtooth": lambda rng, d, lam: lam * rng.integers(1, 5) * (np.arange(d) % rng.integers(2, 9)),
    "walk": lambda rng, d, lam: lam * np.cumsum(rng.integers(-1, 2, size=d)),
    "one ulp": lambda rng, d, lam: 1 + 2.3e-16 * rng.integers(0, 3, size=d),
}


def random_setting(rng: np.random.Generator, mapping: str) -> Setting:
    values = {
        "gamma": rng.choice((0.25, 0.5, 1, 1, 2, 3)),
        "lam": rng.choice((0, 0.01, 0.1, 0.125, 0.2, 1)),
        "p": rng.choice((1.01, 1.1, 1.5, 1.9, 2)),
        "alpha": rng.choice((1, 1.01, 1.25, 1.5, 1.9, 2)),
    }
    return Setting(mapping, tuple((name, float(values[name])) for name in MAPPINGS[mapping].strengths))


def random_rows(
    mapping: str, kinds: dict[str, Callable[..., np.ndarray]]
) -> list[tuple[Setting, np.ndarray]]:
    rng = np.random.default_rng(sum(map(ord, mapping)))
    rows = []
    for kind in (list(kinds.values()) * ROWS)[:ROWS]:
        setting = random_setting(rng, mapping)
        x = kind(rng, int(rng.choice(SIZES)), setting.parameters.get("lam") or 0.1)
        x = x * rng.choice((1e-3, 1, 1, 1, 1e3)) + rng.choice((0, 0, 1, 1e6))
        x[rng.random(len(x)) < rng.choice((0, 0, 0.3))] = -np.inf
        rows.append((setting, x))
    return rows


def in_javascript(node: str, rows: list[tuple[Setting, np.ndarray]]) -> list[np.ndarray]:
    cases = [
        {"x": [None if np.isneginf(score) else score for score in x.tolist()],
         "setting": {"mapping": setting.mapping, **setting.parameters}}
        for setting, x in rows
    ]  # fmt: skip
    script = Path(__file__).with_name("map_rows.js")
    command = [node, str(script), str(MAPPINGS_JS)]
    ran = subprocess.run(command, input=json.dumps(cases), capture_output=True, text=True, check=True)
    return [np.array(y) for y in json.loads(ran.stdout)]


def distances(y: np.ndarray, setting: Setting) -> np.ndarray:
    """The distances of weights from zero and from each other: from the neighbour, or for oscarmax from all others."""
    apart = y[:, None] - y if setting.clustered else np.diff(y)
    return np.abs(np.concatenate([y, apart.ravel()]))


def pattern(y: np.ndarray, setting: Setting) -> np.ndarray:
    """Which weights are zero, and which are equal."""
    return distances(y, setting) == 0


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_generic_rows_agree_with_the_same_zeros_and_ties(node: str, mapping: str) -> None:
    rows = random_rows(mapping, GENERIC)
    for (setting, x), y in zip(rows, in_javascript(node, rows), strict=True):
        expected = np.nan_to_num(setting(x))
        np.testing.assert_allclose(y, expected, rtol=0, atol=1e-9, err_msg=f"{setting} of {x.tolist()}")
        np.testing.assert_array_equal(
            pattern(y, setting), pattern(expected, setting), f"{setting} of {x.tolist()}"
        )


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_adversarial_rows_agree_but_for_the_last_bits(node: str, mapping: str) -> None:
    """Every row: a weight that is zero in one is at most rounding in the other, and the same for differences.

    On these rows a true weight, or the true difference of two, is exactly zero, and the order of a sum decides whether
    the computed one is. Many are ties on paper only, because decimals such as 0.1 are not binary fractions: there the
    library, which decides in exact arithmetic, keeps a difference of one unit that JavaScript rounds away.
    """
    rows = random_rows(mapping, KINKS)
    differing = 0
    for (setting, x), y in zip(rows, in_javascript(node, rows), strict=True):
        expected = np.nan_to_num(setting(x))
        np.testing.assert_allclose(y, expected, rtol=0, atol=1e-9, err_msg=f"{setting} of {x.tolist()}")
        for one, other in ((y, expected), (expected, y)):
            same = pattern(one, setting)
            assert distances(other, setting)[same].max(initial=0) <= ROUNDING, f"{setting} of {x.tolist()}"
        differing += not np.array_equal(pattern(y, setting), pattern(expected, setting))
    assert differing <= 0.02 * ROWS


def test_a_row_without_scores_has_no_weight(node: str) -> None:
    (y,) = in_javascript(node, [(Setting("fusedmax"), np.full(3, -np.inf))])
    assert y.tolist() == [0, 0, 0]
