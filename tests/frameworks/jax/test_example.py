"""The example with Equinox and optax learns lam."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

pytest.importorskip("equinox")
pytest.importorskip("optax")

EXAMPLE = Path(__file__).parents[3] / "examples" / "jax_learn_lam.py"


def test_the_loss_falls_and_lam_moves() -> None:
    before, after, lam = runpy.run_path(str(EXAMPLE))["train"](steps=60)
    assert after < 0.5 * before
    assert abs(lam - 0.02) > 1e-3
