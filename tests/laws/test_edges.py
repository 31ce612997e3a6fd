"""Masks, infinities, NaN and empty arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fronts import Front
from table import Entry

import regmax

INF = np.inf


def test_the_example_of_the_fused_chain(front: Front) -> None:
    """A padded position is deleted: it is not adjacent to a kept position, as a fill value would be."""
    expected = [0.4, 0.4, 0.2]
    x = np.array([1.0, 0.9, 0.6])
    np.testing.assert_allclose(front(regmax.fusedmax, x, lam=0.1), expected, rtol=0, atol=1e-15)
    padded = np.array([1.0, 0.9, 0.6, 5.0])
    mask = np.array([True, True, True, False])
    np.testing.assert_allclose(
        front(regmax.fusedmax, padded, lam=0.1, mask=mask), [*expected, 0], rtol=0, atol=1e-15
    )


def test_a_deleted_position_joins_its_neighbours(front: Front) -> None:
    x = np.array([1.0, -9.0, 0.9, 0.6])
    mask = np.array([True, False, True, True])
    np.testing.assert_allclose(
        front(regmax.fusedmax, x, lam=0.1, mask=mask), [0.4, 0, 0.4, 0.2], rtol=0, atol=1e-15
    )


@pytest.mark.pairs
@pytest.mark.parametrize("hidden", [0.0, 7.0, INF, -INF, np.nan])
def test_what_the_mask_hides_has_no_influence(entry: Entry, front: Front, hidden: float) -> None:
    x = np.array([[0.3, 0.0, 0.25, -0.1, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
    mask = np.array([[True, False, True, True, False], [False, True, False, False, True]])
    x[~mask] = hidden
    y = front(entry, x, mask=mask)
    np.testing.assert_allclose(y[0, mask[0]], front(entry, x[0, mask[0]]), rtol=0, atol=1e-15)
    np.testing.assert_allclose(y[1], [0, 0.5, 0, 0, 0.5], rtol=0, atol=1e-15)
    assert np.all(y[~mask] == 0)


def test_minus_infinity_is_a_mask(entry: Entry, front: Front) -> None:
    x = np.array([[0.3, -INF, 0.25, -0.1, -INF, 0.5], [-INF, 1.0, -INF, -INF, -INF, -INF]])
    y = front(entry, x)
    masked = front(entry, np.where(x == -INF, 3.0, x), mask=x != -INF)
    np.testing.assert_allclose(y, masked, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(y == 0, masked == 0)
    np.testing.assert_array_equal(y[1], [0, 1, 0, 0, 0, 0])


def test_a_mask_broadcasts(entry: Entry, front: Front) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    for shape in ((5,), (4, 5), (1, 5), (3, 1, 5), (2, 1, 1, 5), (2, 3, 4, 1), ()):
        mask = np.asarray(np.random.default_rng(1).random(shape) < 0.6)
        full = np.broadcast_to(mask, x.shape).copy()
        np.testing.assert_array_equal(front(entry, x, mask=mask), front(entry, x, mask=full))


def test_a_row_without_kept_scores_is_zero(entry: Entry, front: Front) -> None:
    x = np.array([[1.0, 2.0, 3.0], [0.5, 0.5, 0.5], [-INF, -INF, -INF]])
    mask = np.array([[False] * 3, [True] * 3, [True] * 3])
    y = front(entry, x, mask=mask)
    np.testing.assert_array_equal(y[[0, 2]], np.zeros((2, 3)))
    assert not np.any(np.signbit(y))
    np.testing.assert_allclose(y[1], 1 / 3, atol=1e-15)


@pytest.mark.pairs
@pytest.mark.parametrize("bad", [np.nan, INF])
def test_a_row_with_nan_or_infinity_is_nan(entry: Entry, front: Front, bad: float) -> None:
    x = np.array([[1.0, bad, 0.5], [1.0, 0.5, 0.4], [-INF, bad, bad], [bad, 1.0, 2.0]])
    mask = np.array([[True, True, True], [True, True, True], [True, True, True], [False, True, True]])
    y = front(entry, x, mask=mask)
    assert np.all(np.isnan(y[0]))
    assert np.all(np.isnan(y[2]))
    assert np.all(np.isfinite(y[[1, 3]]))
    np.testing.assert_array_equal(front(entry, x)[1], y[1])


@pytest.mark.pairs
@pytest.mark.parametrize("bad", [np.nan, INF])
def test_the_gradient_of_a_nan_row_is_nan(entry: Entry, torch_path: str, bad: float) -> None:
    x = torch.tensor([[1.0, bad, 0.5], [1.0, 0.5, 0.4]], requires_grad=True)
    entry(x).backward(torch.tensor([[1.0, 2.0, 4.0], [1.0, 2.0, 4.0]]))
    assert torch.all(torch.isnan(x.grad[0]))
    assert torch.all(torch.isfinite(x.grad[1]))


def test_deleted_positions_have_no_gradient(entry: Entry, torch_path: str) -> None:
    kept = [0, 2, 3]
    x = torch.tensor([[0.37, -INF, 0.2, 0.05], [-INF] * 4, [0.37, 0.3, 0.2, 0.05], [1.0, 2.0, 3.0, 4.0]])
    x.requires_grad_()
    mask = torch.tensor([[True] * 4, [True] * 4, [True, False, True, True], [False] * 4])
    v = torch.tensor([1.0, -2.0, 4.0, 0.5])
    entry(x, mask=mask).backward(v.expand(4, 4))
    alone = torch.tensor([0.37, 0.2, 0.05], requires_grad=True)
    entry(alone).backward(v[kept])
    torch.testing.assert_close(x.grad[0, kept], alone.grad)
    torch.testing.assert_close(x.grad[2, kept], alone.grad)
    assert torch.equal(x.grad[[1, 3]], torch.zeros(2, 4))
    assert x.grad[0, 1] == 0
    assert x.grad[2, 1] == 0


@pytest.mark.pairs
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (2, 0, 3), (0, 0), (2, 3, 0)])
def test_an_empty_array_gives_an_empty_array(entry: Entry, front: Front, shape: tuple[int, ...]) -> None:
    for dim in range(-len(shape), len(shape)):
        y = front(lambda x, dim=dim: entry(x, dim), np.empty(shape))
        assert y.shape == shape


def test_one_score_has_all_the_weight(entry: Entry, front: Front) -> None:
    for value in (0.0, -0.0, 1e6, -1e6, 1e-30):
        np.testing.assert_array_equal(front(entry, np.full((2, 1), value)), np.ones((2, 1)))


def test_equal_scores_share_the_weight(entry: Entry, front: Front) -> None:
    for d in (2, 3, 7, 64, 300):
        for value in (0.0, 1e6, -1e-6):
            y = front(entry, np.full((1, d), value, dtype=np.float32))
            np.testing.assert_allclose(y, 1 / d, rtol=2e-7)
            assert np.all(y == y[0, 0])


def test_a_score_far_above_the_others_takes_all(entry: Entry, front: Front) -> None:
    x = np.zeros((1, 9))
    x[0, 4] = 1e4
    np.testing.assert_array_equal(front(entry, x), np.eye(9)[[4]])


def test_huge_strengths_give_the_uniform_distribution(front: Front) -> None:
    x = np.random.default_rng(0).normal(size=(4, 33))
    for y in (
        front(regmax.fusedmax, x, lam=1e6),
        front(regmax.oscarmax, x, lam=1e6),
        front(regmax.sparsemax, x, gamma=1e6),
    ):
        np.testing.assert_allclose(y, 1 / 33, atol=1e-5)
    assert np.all(np.diff(front(regmax.fusedmax, x, lam=1e6)) == 0)


def test_max_and_gap_skip_what_is_deleted(entry: Entry, front: Front) -> None:
    x = np.array([[0.5, 9.0, 0.4, 0.1], [0.5, 9.0, 0.4, 0.1]])
    mask = np.array([[True, False, True, True]] * 2)
    alone = x[:, [0, 2, 3]]

    def maximum(a: Any, mask: Any = None) -> Any:
        return regmax.regularized_max(entry.omega, a, mask=mask)

    def gap(a: Any, b: Any, mask: Any = None) -> Any:
        return regmax.duality_gap(entry.omega, a, b, mask=mask)

    np.testing.assert_allclose(front(maximum, x, mask=mask), front(maximum, alone), atol=1e-14)
    y = np.array([[0.2, 0.0, 0.3, 0.5], [1.0, 0.0, 0.0, 0.0]])
    np.testing.assert_allclose(front(gap, x, y, mask=mask), front(gap, alone, y[:, [0, 2, 3]]), atol=1e-14)
    assert np.all(front(gap, x, np.full((2, 4), 0.25), mask=mask) == INF)


# gamma as a number and as an array, which take different ways; the division alone overflows in float32.
@pytest.mark.parametrize("gamma", [0.25, np.full((1, 1), 0.25, np.float32)], ids=["number", "array"])
def test_no_gamma_deletes_a_low_score(front: Front, gamma: Any) -> None:
    lowest = float(np.finfo(np.float32).min)
    x = np.array([[0.0, lowest, 0.05]], np.float32)
    # Deleted, the middle score would leave two neighbours, which fuse: 0.5, 0, 0.5.
    y = front(regmax.fusedmax, x, lam=0.1, gamma=gamma)
    np.testing.assert_allclose(y, [[0.4, 0.0, 0.6]], rtol=0, atol=1e-6)
    largest = front(lambda x, **kw: regmax.regularized_max(regmax.SquaredNorm(), x, **kw), x, gamma=gamma)
    np.testing.assert_allclose(largest, [0.6 * 0.05 - 0.125 * (0.4**2 + 0.6**2)], rtol=0, atol=1e-6)


@pytest.mark.pairs
@pytest.mark.parametrize("gamma", [1e-3, np.full((1, 1), 1e-3, np.float32)], ids=["number", "array"])
@pytest.mark.parametrize("mapping", [regmax.softmax, regmax.sparsemax, regmax.oscarmax, regmax.sqpnormmax])
def test_no_gamma_spoils_a_high_score(front: Front, mapping: Any, gamma: Any) -> None:
    highest = float(np.finfo(np.float32).max)
    x = np.array([[highest, 0.0, highest, -highest]], np.float32)
    np.testing.assert_array_equal(front(mapping, x, gamma=gamma), [[0.5, 0.0, 0.5, 0.0]])
