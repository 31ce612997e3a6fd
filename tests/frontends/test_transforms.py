"""torch.func on the real kernels: grad, vjp, jvp, jacrev, jacfwd, hessian and vmap, single and composed."""

from __future__ import annotations

import pytest
import torch
from points import interior
from table import Entry
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import regmax


def rows(entry: Entry, n: int = 3, d: int = 6) -> torch.Tensor:
    return torch.tensor(interior(entry, n, d))


def direction(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def dense_jacobian(entry: Entry, x: torch.Tensor) -> torch.Tensor:
    """J by finite differences of forward calls, the expected result of the transforms."""
    h, eye = 1e-6, torch.eye(x.shape[-1], dtype=x.dtype)
    return torch.stack([(entry(x + h * e) - entry(x - h * e)) / (2 * h) for e in eye], dim=-1)


def close(a: torch.Tensor, b: torch.Tensor, entry: Entry) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=1e-7 / entry.beta)


def test_first_derivatives(entry: Entry, torch_path: str) -> None:
    x, v = rows(entry)[0], direction(6)
    j = dense_jacobian(entry, x)
    assert j.abs().max() > 0.05
    close(grad(lambda t: entry(t) @ v)(x), j @ v, entry)
    close(vjp(entry, x)[1](v)[0], j @ v, entry)
    close(jvp(entry, (x,), (v,))[1], j @ v, entry)
    close(jacrev(entry)(x), j, entry)
    close(jacfwd(entry)(x), j, entry)


def test_second_derivatives(entry: Entry, torch_path: str) -> None:
    """The Hessian of a quadratic of y, so that a missing second-order term shows even if J is locally constant."""
    x, v = rows(entry)[0], direction(6)

    def loss(t: torch.Tensor) -> torch.Tensor:
        return (entry(t) ** 2 * v).sum()

    h, eye = 1e-5, torch.eye(6, dtype=x.dtype)
    expected = torch.stack([(grad(loss)(x + h * e) - grad(loss)(x - h * e)) / (2 * h) for e in eye])
    for second in (
        hessian(loss),
        jacrev(jacrev(loss)),
        jacfwd(jacrev(loss)),
        jacrev(jacfwd(loss)),
        jacfwd(jacfwd(loss)),
    ):
        torch.testing.assert_close(second(x), expected, rtol=1e-5, atol=1e-6)
    assert expected.abs().max() > 0.01


def test_the_hessian_of_max_is_the_jacobian(entry: Entry, torch_path: str) -> None:
    x = rows(entry)[0]
    close(hessian(lambda t: regmax.regularized_max(entry.omega, t))(x), jacrev(entry)(x), entry)


@pytest.mark.pairs
@pytest.mark.parametrize(("in_dim", "dim"), [(0, -1), (1, -1), (1, 0), (2, 0), (-1, 1), (0, 1)])
def test_vmap_over_any_dimension(entry: Entry, torch_path: str, in_dim: int, dim: int) -> None:
    x = direction(3, 4, 5)
    expected = torch.stack([entry(slice_, dim) for slice_ in x.unbind(in_dim)])
    ours = vmap(lambda t: entry(t, dim), in_dims=in_dim)(x)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-14)


def test_vmap_inside_vmap(entry: Entry, torch_path: str) -> None:
    x = direction(3, 4, 2, 5)
    ours = vmap(vmap(entry), in_dims=1, out_dims=1)(x)
    torch.testing.assert_close(ours, entry(x), rtol=0, atol=1e-14)


@pytest.mark.pairs
@pytest.mark.parametrize(("x_dim", "mask_dim"), [(0, 0), (None, 0), (0, None), (1, 2), (0, 1)])
def test_vmap_with_a_mask(entry: Entry, torch_path: str, x_dim: int | None, mask_dim: int | None) -> None:
    x, mask = direction(3, 3, 3), torch.rand(3, 3, 3, generator=torch.Generator().manual_seed(0)) < 0.7
    mask = mask[0] if mask_dim is None else mask

    def slices(t: torch.Tensor, dim: int | None) -> list[torch.Tensor]:
        return [t] * 3 if dim is None else list(t.unbind(dim))

    expected = torch.stack(
        [entry(a, mask=m) for a, m in zip(slices(x, x_dim), slices(mask, mask_dim), strict=True)]
    )
    ours = vmap(lambda a, m: entry(a, mask=m), in_dims=(x_dim, mask_dim))(x, mask)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-14)


def test_vmap_of_derivatives(entry: Entry, torch_path: str) -> None:
    x, v = rows(entry), direction(3, 6)
    j = torch.stack([dense_jacobian(entry, row) for row in x])
    product = torch.einsum("nij,nj->ni", j, v)
    close(vmap(jacrev(entry))(x), j, entry)
    close(vmap(jacfwd(entry))(x), j, entry)
    close(vmap(grad(lambda t, w: entry(t) @ w))(x, v), product, entry)
    close(vmap(lambda t, w: jvp(entry, (t,), (w,))[1])(x, v), product, entry)
    close(vmap(lambda w: vjp(entry, x[0])[1](w)[0])(v), v @ j[0], entry)
    close(vmap(lambda w: jvp(entry, (x[0],), (w,))[1], in_dims=1)(v.T), v @ j[0], entry)


def test_per_sample_gradients(entry: Entry, torch_path: str) -> None:
    """As in differential privacy: one gradient per sample, through a shared parameter."""
    x, w = rows(entry), torch.ones(6, dtype=torch.float64)

    def loss(w: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        return entry(w * row).pow(2).sum()

    ours = vmap(grad(loss), in_dims=(None, 0))(w, x)
    torch.testing.assert_close(ours, torch.stack([grad(loss)(w, row) for row in x]))
    assert ours.abs().max() > 1e-2
