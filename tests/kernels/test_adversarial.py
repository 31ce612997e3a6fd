"""A small number of the adversarial rows of `adversarial.py`, and tests that its judges reject wrong results."""

from __future__ import annotations

import adversarial
import adversarial_prox
import numpy as np
import pytest
from adversarial_rows import Batch

from regmax.kernels import native


@pytest.mark.parametrize("seed", range(4))
def test_adversarial_rows(seed: int, capfd: pytest.CaptureFixture[str]) -> None:
    assert not adversarial.run(rows=15_000, seed=100 + seed, seconds=120), capfd.readouterr().out


@pytest.mark.parametrize("name", ["baseline", "avx2", "avx512"])
def test_every_instruction_set(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    usual = native.instruction_set()
    try:
        native.use_instruction_set(name)
    except ValueError:
        pytest.skip("this machine does not have it")
    try:
        assert native.instruction_set() == name
        assert not adversarial.run(rows=10_000, seed=200, seconds=120), capfd.readouterr().out
    finally:
        native.use_instruction_set(usual)


@pytest.mark.parametrize("d", [17, 32, 100, 1000])
def test_flat_rows_are_cut_where_float64_cuts_them(d: int) -> None:
    x = (5 + 0.03 * np.random.default_rng(d).normal(size=(40, d))).astype(np.float32)
    y = native.argmax("fusedmax", x, None, 0.1)
    exact = native.argmax("fusedmax", x.astype(np.float64), None, 0.1)
    np.testing.assert_allclose(y, exact, rtol=0, atol=1e-7)
    np.testing.assert_array_equal(np.diff(y) != 0, np.diff(exact) != 0)


def batch_of(kernel: str, theta: float) -> tuple[Batch, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(50, 20)).astype(np.float32)
    return Batch(kernel, theta, "normal", x, None), native.argmax(kernel, x, None, theta)


MAPPINGS = pytest.mark.parametrize(
    ("kernel", "theta"),
    [
        ("sparsemax", 0.0),
        ("fusedmax", 0.1),
        ("oscarmax", 0.02),
        ("sqpnormmax", 1.5),
        ("entmax", 1.5),
        ("entmax", 1.25),
    ],
)


@MAPPINGS
def test_the_judge_of_weights_says_no(kernel: str, theta: float) -> None:
    batch, y = batch_of(kernel, theta)
    assert adversarial.forward_faults(batch, y) == []
    moved = y.copy()
    moved[0] = (0.9 * y[0] + 0.1 * (y[0] > 0) / np.sum(y[0] > 0)).astype(
        np.float32
    )  # towards the centre of its support
    assert "gap" in adversarial.forward_faults(batch, moved)[0]
    assert "sum" in adversarial.forward_faults(batch, np.float32(1.001) * y)[0]
    assert adversarial.forward_faults(batch, np.where(y == 0, np.float32(-0.0), y))
    assert adversarial.forward_faults(batch, np.full_like(y, np.nan))


@MAPPINGS
def test_the_judge_of_products_says_no(kernel: str, theta: float) -> None:
    batch, y = batch_of(kernel, theta)
    v = np.random.default_rng(1).normal(size=y.shape).astype(np.float32)
    product = native.jacobian_product(kernel, y, v, None, theta)
    assert adversarial.backward_faults(batch, y, v, product) == []
    assert adversarial.backward_faults(batch, y, v, np.where(y > 0, v, 0))
    assert adversarial.backward_faults(batch, y, v, product + np.float32(1e-3))
    assert adversarial.backward_faults(batch, y, v, np.float32(1.01) * product)


@pytest.mark.parametrize("kernel", ["prox_tv1d", "prox_oscar"])
def test_the_judge_of_proximal_operators_says_no(kernel: str) -> None:
    x = np.random.default_rng(2).normal(size=(50, 20))
    alive = np.ones(x.shape, dtype=bool)
    residual = {"prox_tv1d": adversarial_prox.tv_residual, "prox_oscar": adversarial_prox.oscar_residual}[
        kernel
    ]
    z = native.argmax(kernel, x, None, 0.05)
    assert np.all(residual(x, z, alive, 0.05) < 1e-12)
    assert np.all(residual(x, z, alive, 0.0501) > 1e-6)
    assert np.all(residual(x, 1.0001 * z, alive, 0.05) > 1e-6)
