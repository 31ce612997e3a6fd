"""The row kernels in Triton's interpreter against the float64 reference."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")

import torch
from row_families import FAMILIES, rows

from regmax.kernels import KERNELS as KERNEL_TABLE
from regmax.kernels import native, reference, tensors, triton
from regmax.kernels.triton import launch, row_kernels

KERNELS = [
    ("sparsemax", None),
    ("fusedmax", 0.0),
    ("fusedmax", 0.01),
    ("fusedmax", 0.1),
    ("oscarmax", 0.0),
    ("oscarmax", 0.01),
    ("oscarmax", 0.1),
    ("sqpnormmax", 1.5),
    ("sqpnormmax", 1.2),
    ("entmax", 1.5),
    ("entmax", 1.2),
]
STRENGTHS = {"fusedmax": 0.1, "oscarmax": 0.02, "sqpnormmax": 1.5, "entmax": 1.5}
MAPPINGS = ["sparsemax", *STRENGTHS]
VALUES, GRADIENTS = 3e-6, 2e-5


def strengths_by_tensors(
    kernel: str, y: torch.Tensor, v: torch.Tensor, keep: torch.Tensor | None, theta: Any, gamma: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """The derivatives of <v, y> in theta and gamma, by tensor operations."""
    product = tensors.jacobian_product(kernel, y, v, keep, theta, gamma=gamma)
    penalty = tensors.theta_gradient(kernel, y, keep, theta)
    gradient = tensors.omega_gradient(kernel, y, keep, theta)
    return -gamma * (product * penalty).sum(-1, keepdim=True), -(product * gradient).sum(-1, keepdim=True)


def compare(kernel: str, theta: Any, x: np.ndarray, keep: np.ndarray | None = None, gamma: Any = 1.0) -> None:
    """Weights against the reference; products and strengths' gradients against it at these weights."""
    mask = None if keep is None else torch.tensor(keep)
    scores = torch.tensor(x)
    y = triton.argmax(kernel, scores, mask, theta, gamma=gamma)
    assert y.dtype == scores.dtype
    expected = reference.argmax(kernel, x.astype(np.float64), keep, theta, gamma=gamma)
    np.testing.assert_allclose(y.double(), expected, rtol=0, atol=VALUES)
    v = torch.tensor(np.random.default_rng(1).normal(size=x.shape).astype(np.float32))
    product, by_theta, by_gamma = triton.strength_grads(kernel, y, v, mask, theta, gamma=gamma)
    weights, direction = y.double(), v.double()
    by_tensors = strengths_by_tensors(kernel, weights, direction, mask, theta, gamma)
    of_reference = reference.jacobian_product(
        kernel, weights.numpy(), direction.numpy(), keep, theta, gamma=gamma
    )
    scale = max(1.0, float(np.abs(of_reference).max()))
    np.testing.assert_allclose(product.double(), of_reference, rtol=0, atol=GRADIENTS * scale)
    if theta == 0:  # its derivative is one-sided, and not unique if scores are tied
        return
    for found, wanted in zip((by_theta, by_gamma), by_tensors, strict=True):
        largest = max(1.0, float(wanted.abs().max()))
        torch.testing.assert_close(found.double(), wanted, rtol=0, atol=GRADIENTS * largest)


@pytest.mark.parametrize(("kernel", "theta"), KERNELS)
@pytest.mark.parametrize(("n", "d"), [(4, 20), (1, 100)])
def test_every_family_of_rows_agrees_with_the_reference(kernel: str, theta: Any, n: int, d: int) -> None:
    compare(kernel, theta, rows(n, d))


@pytest.mark.parametrize(
    ("kernel", "theta"),
    [
        ("sparsemax", None),
        ("fusedmax", 0.1),
        ("oscarmax", 0.0),
        ("oscarmax", 0.01),
        ("sqpnormmax", 1.5),
        ("sqpnormmax", 1.2),
        ("entmax", 1.5),
        ("entmax", 1.2),
    ],
)
def test_rows_longer_than_a_tile(kernel: str, theta: Any) -> None:
    # Clusters of dense rows are found by a loop that the interpreter runs slowly.
    compare(kernel, theta, rows(1, 150 if kernel == "oscarmax" else 300))


@pytest.mark.parametrize("kernel", MAPPINGS)
def test_products_of_long_rows_with_masks_and_chunks(monkeypatch: pytest.MonkeyPatch, kernel: str) -> None:
    """Chunks of 8: segments and deleted positions extend over their borders; a row with NaN stays alone."""
    monkeypatch.setattr(launch, "TILES", [(4, 8)])
    monkeypatch.setattr(launch, "CHUNK", 16)
    x = rows(1, 41)[::2]
    keep = np.random.default_rng(2).random(x.shape) < 0.7
    keep[3] = False
    keep[4] = np.arange(41) == 7
    compare(kernel, STRENGTHS.get(kernel), x, keep, gamma=0.5)
    y = triton.argmax(kernel, torch.tensor(x), torch.tensor(keep), STRENGTHS.get(kernel))
    v = torch.cos(torch.arange(y.numel())).reshape(y.shape)
    clean = triton.jacobian_product(kernel, y, v, torch.tensor(keep), STRENGTHS.get(kernel))
    y[1, keep[1].argmax()] = torch.nan
    found = triton.jacobian_product(kernel, y, v, torch.tensor(keep), STRENGTHS.get(kernel))
    assert torch.equal(found[1].isnan(), torch.tensor(keep[1]))
    others = torch.arange(len(x)) != 1
    assert torch.equal(found[others], clean[others])


@pytest.mark.parametrize("kernel", MAPPINGS)
def test_masked_scores_are_deleted_and_strengths_may_differ_by_row(kernel: str) -> None:
    x = rows(1, 19)
    keep = np.random.default_rng(2).random(x.shape) < 0.6
    keep[3] = False
    keep[4] = np.arange(19) == 7
    theta = STRENGTHS.get(kernel)
    compare(kernel, theta, x, keep, gamma=0.5)
    per_row = np.linspace(0.6, 1.2, len(x))
    x[:, 2] = -np.inf
    thetas = None if theta is None else torch.tensor(theta * (per_row if theta < 1 else 1 + 0 * per_row))
    y = triton.argmax(kernel, torch.tensor(x), torch.tensor(keep), thetas, gamma=torch.tensor(per_row))
    expected = reference.argmax(
        kernel, x.astype(np.float64), keep, None if thetas is None else thetas.numpy(), gamma=per_row
    )
    np.testing.assert_allclose(y.double(), expected, rtol=0, atol=VALUES)


@pytest.mark.parametrize("kernel", MAPPINGS)
def test_rows_without_a_result(kernel: str) -> None:
    nan, inf = np.nan, np.inf
    x = torch.tensor([[nan, 1, 2], [inf, 1, -inf], [-inf, -inf, -inf], [1, 2, 3], [nan, 1, 2]])
    keep = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 1, 1], [0, 0, 0], [0, 1, 1]], dtype=torch.bool)
    theta = STRENGTHS.get(kernel)
    y = triton.argmax(kernel, x, keep, theta)
    np.testing.assert_allclose(
        y, reference.argmax(kernel, x.double().numpy(), keep.numpy(), theta), atol=1e-6
    )
    assert y[0].isnan().tolist() == [True, True, False]
    product = triton.jacobian_product(kernel, y, torch.ones_like(y), keep, theta)
    assert product[0].isnan().tolist() == [True, True, False]
    assert not product[2:4].any()


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0), (3, 1)])
@pytest.mark.parametrize("kernel", MAPPINGS)
def test_empty_rows_and_rows_of_one_score(kernel: str, shape: tuple[int, int]) -> None:
    x, theta = torch.full(shape, 7.0), STRENGTHS.get(kernel)
    y = triton.argmax(kernel, x, None, theta)
    assert y.shape == shape
    assert (y == 1).all()
    assert not triton.jacobian_product(kernel, y, x, None, theta).any()


@pytest.mark.parametrize(
    ("kernel", "theta"),
    [
        ("sparsemax", None),
        ("fusedmax", 0.02),
        ("oscarmax", 0.02),
        ("oscarmax", 0.0),
        ("sqpnormmax", 1.5),
        ("sqpnormmax", 1.3),
        ("entmax", 1.5),
        ("entmax", 1.0),
    ],
)
def test_rows_that_overflow_their_tile(monkeypatch: pytest.MonkeyPatch, kernel: str, theta: Any) -> None:
    """Half of these rows have more candidates than slots, and are mapped by `long_rows`."""
    monkeypatch.setattr(launch, "TILES", [(4, 8)])
    monkeypatch.setattr(launch, "CHUNK", 16)
    x = rows(1, 41)[[0, 2, 4, 6, 9]]
    keep = np.random.default_rng(2).random(x.shape) < 0.8
    for mask in (None, keep):
        y = triton.argmax(
            kernel, torch.tensor(x), None if mask is None else torch.tensor(mask), theta, gamma=2.0
        )
        assert int(((y > 0).sum(1) > 8).sum()) >= 2
        expected = reference.argmax(kernel, x.astype(np.float64), mask, theta, gamma=2.0)
        np.testing.assert_allclose(y.double(), expected, rtol=0, atol=VALUES)


@pytest.mark.parametrize("kernel", MAPPINGS)
def test_float64_is_computed_in_float64(kernel: str) -> None:
    x, theta = rows(1, 20).astype(np.float64), STRENGTHS.get(kernel)
    y = triton.argmax(kernel, torch.tensor(x), None, theta, gamma=0.3)
    np.testing.assert_allclose(y, reference.argmax(kernel, x, None, theta, gamma=0.3), rtol=0, atol=1e-11)


@pytest.mark.parametrize("kernel", MAPPINGS)
def test_halves_are_read_by_the_kernel(kernel: str) -> None:
    x, theta = torch.tensor(rows(1, 20)).half(), STRENGTHS.get(kernel)
    y = triton.argmax(kernel, x, None, theta)
    assert y.dtype == torch.float16
    expected = reference.argmax(kernel, x.double().numpy(), None, theta)
    np.testing.assert_allclose(y.double(), expected, rtol=0, atol=5e-4)


@pytest.mark.parametrize("kernel", MAPPINGS)
def test_strided_rows_and_broadcast_masks(kernel: str) -> None:
    base, theta = torch.tensor(rows(2, 12)), STRENGTHS.get(kernel)
    x, keep = base.T[:, ::2], torch.arange(12)[None] % 5 != 1
    expected = reference.argmax(kernel, x.double().numpy(), keep.numpy(), theta)
    np.testing.assert_allclose(triton.argmax(kernel, x, keep, theta).double(), expected, atol=VALUES)


def test_equal_scores_get_equal_weights_and_segments_are_bitwise_equal() -> None:
    x = torch.tensor(rows(1, 20)[[list(FAMILIES).index("tied")]])
    for kernel in ("sparsemax", "oscarmax", "sqpnormmax", "entmax"):
        y = triton.argmax(kernel, x, None, STRENGTHS.get(kernel))
        for score in x.unique():
            assert len(y[x == score].unique()) == 1
    y = triton.argmax("fusedmax", torch.tensor([[1.0, 0.9, 0.95, -3.0, 0.9]]), None, 0.2)[0]
    assert y[0] == y[1] == y[2] > 0
    assert y[3] == 0


def test_tensor_operations_agree_on_the_number_of_zeros() -> None:
    """Ties at the threshold may be decided differently: they are counted, and have almost no weight."""
    x = torch.tensor(rows(2, 20))
    y, other = triton.argmax("fusedmax", x, None, 0.1), tensors.argmax("fusedmax", x, None, 0.1)
    differ = (y > 0) != (other > 0)
    assert y[differ].abs().max() < 1e-6 if differ.any() else True
    assert int(differ.any(1).sum()) <= 4


def test_offsets_beyond_32_bits() -> None:
    """Rows that are 2^30 scores apart, in virtual memory of which only a few pages are used."""
    distance, rows_apart = 2**30, 3
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    memory = mmap.mmap(-1, 4 * (distance * (rows_apart - 1) + 64), flags=flags)
    x = torch.frombuffer(memory, dtype=torch.float32).as_strided((rows_apart, 20), (distance, 1))
    x.copy_(torch.tensor(rows(1, 20)[:rows_apart]))
    y = triton.argmax("fusedmax", x, None, 0.1)
    assert torch.equal(y, triton.argmax("fusedmax", x.clone(), None, 0.1))
    v = torch.ones(rows_apart, 20).cumsum(-1)
    found = triton.jacobian_product("fusedmax", y, v, None, 0.1)
    spread = x.copy_(y)
    assert torch.equal(triton.jacobian_product("fusedmax", spread, v, None, 0.1), found)


def test_wide_strides_inside_a_row_are_copied() -> None:
    x = torch.empty(2, 3, device="meta").as_strided((2, 3), (1, 2**30))
    assert launch.narrow(x).stride() == (3, 1)
    assert launch.narrow(torch.empty(5, 4).T).stride() == (1, 4)


@pytest.mark.parametrize(
    ("kernel", "theta", "d"),
    [("fusedmax", 0.01, 4096), ("fusedmax", 0.1, 4096), ("sparsemax", None, 4096), ("oscarmax", 0.001, 512)],
)
def test_the_algorithms_on_whole_long_rows(
    monkeypatch: pytest.MonkeyPatch, kernel: str, theta: Any, d: int
) -> None:
    """One row of every family in a tile as long as the row, which no GPU holds: the algorithm, not the shipped tile."""
    monkeypatch.setattr(launch, "TILES", [(16, d)])
    x = rows(1, d)
    y = triton.argmax(kernel, torch.tensor(x), None, theta)
    expected = native.argmax(kernel, x.astype(np.float64), None, theta)
    np.testing.assert_allclose(y.double(), expected, rtol=0, atol=VALUES)
    # A score on the threshold may get almost nothing instead of zero: in the tied families only.
    differ = (y.numpy() > 0) != (expected > 0)
    assert expected[differ].max(initial=0) < 1e-6
    assert {list(FAMILIES)[row] for row in differ.any(1).nonzero()[0]} <= {"tied", "zeros and ones", "steps"}


def test_the_kernels_table_declares_what_triton_has() -> None:
    declared = {name for name, kernel in KERNEL_TABLE.items() if kernel.triton}
    assert declared == triton.CHOSEN == set(MAPPINGS)
    assert declared == {name for name in KERNEL_TABLE if hasattr(row_kernels, name.upper())}
