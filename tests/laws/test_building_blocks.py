"""The simplex projection, the proximal operators of TV and OWL, and `groups`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import cvxpy as cp
import numpy as np
import oracle
import pytest
import torch
from fronts import Front
from torch.autograd import gradcheck, gradgradcheck

import regmax

RNG = np.random.default_rng(11)
ROWS = [RNG.normal(size=d) for d in (1, 2, 3, 8, 25)] + [np.round(3 * RNG.normal(size=12)) / 2]


EVERY_ROW = pytest.mark.parametrize("row", range(len(ROWS)), ids=lambda row: f"d={len(ROWS[row])}")


@lru_cache  # the solver takes longer than all paths of a case together
def nearest(row: int) -> np.ndarray:
    return oracle.solve("sparsemax", ROWS[row][None], np.ones(1)).y[0]


@lru_cache
def smoothest(row: int, lam: float) -> np.ndarray:
    x = ROWS[row]
    return oracle.minimize(
        lambda v: cp.sum_squares(v - x) / 2 + (lam * cp.tv(v) if len(x) > 1 else 0), len(x)
    )


@EVERY_ROW
def test_project_simplex_is_the_nearest_point(front: Front, row: int) -> None:
    np.testing.assert_allclose(front(regmax.project_simplex, ROWS[row]), nearest(row), rtol=0, atol=1e-7)


@pytest.mark.pairs
@pytest.mark.parametrize("lam", [0.0, 0.2, 1.0, 100.0])
@EVERY_ROW
def test_prox_tv1d_is_the_minimiser(front: Front, row: int, lam: float) -> None:
    z, expected = front(lambda a: regmax.prox_tv1d(a, lam), ROWS[row]), smoothest(row, lam)
    np.testing.assert_allclose(z, expected, rtol=0, atol=1e-6)
    near = np.abs(np.diff(expected)) < 1e-8
    if lam > 0:
        assert np.all(np.diff(z)[near] == 0)


def owl_weights(shape: str, d: int) -> np.ndarray:
    return {
        "oscar": 0.1 * np.arange(d - 1, -1, -1.0),
        "slope": np.sort(np.random.default_rng(d).random(d))[::-1].copy(),
        "lasso": np.full(d, 0.4),
        "largest": np.eye(d)[0],
        "zero": np.zeros(d),
    }[shape]


@lru_cache
def shrunk(row: int, shape: str) -> np.ndarray:
    """By sum_k weights_k |z|_(k) = sum_k drops_k (sum of the k largest)."""
    x, weights = ROWS[row], owl_weights(shape, len(ROWS[row]))
    drops = weights - np.append(weights[1:], 0)
    return oracle.minimize(
        lambda v: (
            cp.sum_squares(v - x) / 2
            + sum(drop * cp.sum_largest(cp.abs(v), k) for k, drop in enumerate(drops, 1))
        ),
        len(x),
    )


@pytest.mark.pairs
@pytest.mark.parametrize("shape", ["oscar", "slope", "lasso", "largest", "zero"])
@EVERY_ROW
def test_prox_owl_is_the_minimiser(front: Front, row: int, shape: str) -> None:
    z = front(regmax.prox_owl, ROWS[row], owl_weights(shape, len(ROWS[row])))
    np.testing.assert_allclose(z, shrunk(row, shape), rtol=0, atol=1e-6)


BLOCKS: dict[str, Any] = {
    "project_simplex": regmax.project_simplex,
    "prox_tv1d": lambda x: regmax.prox_tv1d(x, 0.3),
    "prox_owl-oscar": lambda x: regmax.prox_owl(x, 0.1 * torch.arange(5, -1, -1, dtype=torch.float64)),
    "prox_owl-lasso": lambda x: regmax.prox_owl(x, torch.full((6,), 0.3, dtype=torch.float64)),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_building_blocks_are_differentiable(torch_path: str, name: str) -> None:
    x = torch.tensor(RNG.normal(size=(5, 6)), requires_grad=True)
    assert gradcheck(BLOCKS[name], x, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(BLOCKS[name], x)


def test_gradients_flow_to_the_strengths_of_building_blocks(torch_path: str) -> None:
    x = torch.tensor(RNG.normal(size=(5, 6)), requires_grad=True)
    lam = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(regmax.prox_tv1d, (x, lam), check_forward_ad=True)
    per_row = torch.linspace(0.1, 0.5, 5, dtype=torch.float64)[:, None].requires_grad_()
    assert gradcheck(regmax.prox_tv1d, (x, per_row))
    weights = torch.tensor([1.0, 0.7, 0.5, 0.3, 0.15, 0.05], dtype=torch.float64, requires_grad=True)
    # Weights must be sorted, so they are moved along a direction that keeps them sorted.
    assert gradcheck(
        lambda t: regmax.prox_owl(x.detach(), weights * t),
        torch.ones((), dtype=torch.float64, requires_grad=True),
    )


@pytest.mark.parametrize("name", BLOCKS)
def test_building_blocks_take_any_dim(name: str) -> None:
    x = torch.tensor(RNG.normal(size=(6, 3, 2)))
    block = {
        "project_simplex": lambda x, dim: regmax.project_simplex(x, dim),
        "prox_tv1d": lambda x, dim: regmax.prox_tv1d(x, 0.3, dim),
        "prox_owl-oscar": lambda x, dim: regmax.prox_owl(
            x, 0.1 * torch.arange(5, -1, -1, dtype=torch.float64), dim
        ),
        "prox_owl-lasso": lambda x, dim: regmax.prox_owl(x, torch.full((6,), 0.3, dtype=torch.float64), dim),
    }[name]
    torch.testing.assert_close(
        block(x, 0).movedim(0, -1), block(x.movedim(0, -1).contiguous(), -1), rtol=0, atol=1e-14
    )


def test_groups_of_fused_weights(front: Front) -> None:
    y = np.array([[0.0, 0.3, 0.3, 0.0, 0.3, 0.1], [0.5, 0.5, 0.0, 0.0, 0.0, 0.0]])
    found = regmax.groups(front.array(y))
    np.testing.assert_array_equal(front.numpy(found.support), y > 0)
    np.testing.assert_array_equal(front.numpy(found.ids), [[0, 1, 1, 0, 2, 3], [1, 1, 0, 0, 0, 0]])
    np.testing.assert_array_equal(front.numpy(found.starts), [[1, 1, 0, 1, 1, 1], [1, 0, 1, 0, 0, 0]])


def test_groups_of_clustered_weights(front: Front) -> None:
    y = np.array([[0.0, 0.1, 0.3, 0.1, 0.3, 0.2]])
    found = regmax.groups(front.array(y), contiguous=False)
    np.testing.assert_array_equal(front.numpy(found.ids), [[0, 3, 1, 3, 1, 2]])


def test_groups_reach_over_what_is_deleted(front: Front) -> None:
    x, mask = np.array([1.0, 7.0, 0.95, 0.2]), np.array([True, False, True, True])
    y = front(regmax.fusedmax, x, lam=0.1, mask=mask)
    found = regmax.groups(front.array(y), mask=front.array(mask))
    np.testing.assert_array_equal(front.numpy(found.ids), [1, 0, 1, 0])
    apart = regmax.groups(front.array(y))
    np.testing.assert_array_equal(front.numpy(apart.ids), [1, 0, 2, 0])


def test_groups_along_another_dim(front: Front) -> None:
    y = front(regmax.fusedmax, RNG.normal(size=(5, 8)))
    along = regmax.groups(front.array(y)).ids
    across = regmax.groups(front.array(np.ascontiguousarray(y.T)), 0).ids
    np.testing.assert_array_equal(front.numpy(across).T, front.numpy(along))
