"""gamma, lam and p as tensors: one for all rows or one per head, vmapped, learnable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from points import interior
from table import Entry
from torch.autograd import gradcheck, gradgradcheck

import regmax

DOUBLE = torch.float64
STRENGTHS = [
    pytest.param(Entry("fusedmax", {"lam": 0.1}), "lam", id="fusedmax-lam"),
    pytest.param(Entry("oscarmax", {"lam": 0.05}), "lam", id="oscarmax-lam"),
    pytest.param(Entry("sqpnormmax", {"p": 1.5}, beta=0.5, norm=1.5), "p", id="sqpnormmax-p"),
    pytest.param(Entry("entmax", {"alpha": 1.5}), "alpha", id="entmax-alpha"),
    pytest.param(Entry("entmax", {"alpha": 1.25}), "gamma", id="entmax-gamma"),
    pytest.param(Entry("softmax", norm=1), "gamma", id="softmax-gamma"),
    pytest.param(Entry("fusedmax", {"lam": 0.1}), "gamma", id="fusedmax-gamma"),
    pytest.param(Entry("sqpnormmax", {"p": 1.5}, beta=0.5, norm=1.5), "gamma", id="sqpnormmax-gamma"),
]
HEADS, QUERIES, D = 2, 2, 6


def value_of(entry: Entry, name: str) -> float:
    return entry.parameters.get(name, 1.0)


def scores_of(entry: Entry) -> torch.Tensor:
    return torch.tensor(interior(entry, HEADS * QUERIES, D)).reshape(HEADS, QUERIES, D)


def strengths(entry: Entry, name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Close to the table's value: the points stay interior."""
    spread = 1e-4 * torch.arange(1, 1 + int(np.prod(shape, dtype=int)), dtype=DOUBLE).reshape(shape)
    return (value_of(entry, name) + spread).requires_grad_()


@pytest.mark.pairs
@pytest.mark.parametrize(("entry", "name"), STRENGTHS)
@pytest.mark.parametrize("shape", [(), (1,), (HEADS, 1, 1), (QUERIES, 1), (HEADS, QUERIES, 1)])
def test_gradients_flow_to_strengths(
    torch_path: str, entry: Entry, name: str, shape: tuple[int, ...]
) -> None:
    x, theta = scores_of(entry).requires_grad_(), strengths(entry, name, shape)

    def function(x: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
        return entry(x, **{name: theta})

    assert gradcheck(function, (x, theta), check_forward_ad=True)
    assert gradgradcheck(function, (x, theta), fast_mode=True)
    (gradient,) = torch.autograd.grad(
        function(x, theta), theta, torch.linspace(-1, 1, x.numel()).reshape(x.shape).double()
    )
    assert gradient.shape == shape
    assert gradient.abs().max() > 1e-3


@pytest.mark.parametrize(("entry", "name"), STRENGTHS)
def test_gradients_flow_to_strengths_under_a_mask(torch_path: str, entry: Entry, name: str) -> None:
    """Deletion changes adjacency: the positions on both sides of a deleted one are neighbours."""
    kept = torch.tensor([0, 2, 3, 5, 7, 8])
    x = torch.full((HEADS, QUERIES, 9), 40.0, dtype=DOUBLE)
    x[..., kept] = scores_of(entry)
    mask = torch.zeros(9, dtype=torch.bool)
    mask[kept] = True
    theta = strengths(entry, name, ())
    hidden = x.clone().masked_fill(~mask, -torch.inf)
    for function in (
        lambda x, theta: entry(x, mask=mask, **{name: theta}),
        lambda x, theta: entry(x.masked_fill(~mask, -torch.inf), **{name: theta}),
    ):
        assert gradcheck(function, (x.clone().requires_grad_(), theta), check_forward_ad=True, fast_mode=True)
    v = torch.linspace(-1, 1, 9, dtype=DOUBLE)
    (masked,) = torch.autograd.grad(entry(hidden, **{name: theta}), theta, v.expand_as(x))
    (alone,) = torch.autograd.grad(
        entry(x[..., kept], **{name: theta}), theta, v[kept].expand(HEADS, QUERIES, 6)
    )
    torch.testing.assert_close(masked, alone)


@pytest.mark.parametrize(("entry", "name"), STRENGTHS)
def test_the_gradient_of_max_in_a_strength(torch_path: str, entry: Entry, name: str) -> None:
    x, theta = scores_of(entry).requires_grad_(), strengths(entry, name, (HEADS, 1, 1))

    def maximum(x: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
        if name == "gamma":
            return regmax.regularized_max(entry.omega, x, gamma=theta)
        return regmax.regularized_max(entry.row.regularizer.made(theta), x)

    assert gradcheck(maximum, (x, theta), check_forward_ad=True, fast_mode=True)
    assert gradgradcheck(maximum, (x, theta), fast_mode=True)


@pytest.mark.parametrize(("entry", "name"), STRENGTHS)
def test_each_row_obeys_its_own_strength(front: Any, entry: Entry, name: str) -> None:
    x = scores_of(entry).numpy()
    values = value_of(entry, name) * np.array([0.7, 1.1]).reshape(HEADS, 1, 1)
    y = front(entry, x, **{name: values})
    for head, value in enumerate(values.ravel()):
        np.testing.assert_allclose(y[head], front(entry, x[head], **{name: float(value)}), rtol=0, atol=1e-14)
    assert not np.allclose(y[0], front(entry, x[0], **{name: float(values[1, 0, 0])}))


@pytest.mark.parametrize(("entry", "name"), STRENGTHS)
def test_a_strength_moves_with_dim(front: Any, entry: Entry, name: str) -> None:
    x = scores_of(entry).numpy()
    values = value_of(entry, name) * np.array([0.7, 1.1])
    y = front(entry, x, **{name: values.reshape(HEADS, 1, 1)})
    moved = front(
        lambda a, **options: entry(a, 0, **options),
        np.moveaxis(x, -1, 0).copy(),
        **{name: values.reshape(1, HEADS, 1)},
    )
    np.testing.assert_allclose(np.moveaxis(moved, 0, -1), y, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("entry", "name"), STRENGTHS)
def test_strengths_can_be_vmapped(torch_path: str, entry: Entry, name: str) -> None:
    x = scores_of(entry)
    theta = strengths(entry, name, (3,)).detach()

    def function(t: torch.Tensor) -> torch.Tensor:
        return entry(x, **{name: t})

    expected = torch.stack([function(t) for t in theta])
    torch.testing.assert_close(torch.func.vmap(function)(theta), expected, rtol=0, atol=1e-14)
    slopes = torch.stack([torch.func.jacfwd(function)(t) for t in theta])
    torch.testing.assert_close(torch.func.vmap(torch.func.jacrev(function))(theta), slopes)
    assert slopes.abs().max() > 1e-3


@pytest.mark.parametrize(("entry", "name"), STRENGTHS)
def test_a_strength_can_be_learned(torch_path: str, entry: Entry, name: str) -> None:
    """A few steps of gradient descent lower the loss: the sign of the gradient is right."""
    x = scores_of(entry)
    target = entry(x, **{name: value_of(entry, name) * 1.15})
    theta = torch.tensor(value_of(entry, name), dtype=DOUBLE, requires_grad=True)
    losses = []
    for _ in range(5):
        loss = ((entry(x, **{name: theta}) - target) ** 2).sum()
        (gradient,) = torch.autograd.grad(loss, theta)
        losses.append(loss.item())
        theta = (theta - 0.3 * loss.detach() / gradient).detach().requires_grad_()
    assert losses[-1] < 0.5 * losses[0]
