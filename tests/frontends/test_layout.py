"""Strides, dimensions and float types: the result does not depend on the memory layout."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fronts import Front
from table import Entry

RNG = np.random.default_rng(7)
CUBE = RNG.normal(size=(3, 4, 5))

VIEWS = {
    "transposed": lambda x: x.transpose(2, 0, 1),
    "sliced": lambda x: x[:, ::2, 1:4],
    "negative strides": lambda x: x[::-1, :, ::-1],
    "broadcast": lambda x: np.broadcast_to(x[:1], (6, 4, 5)),
    "repeated score": lambda x: np.broadcast_to(x[..., :1], (3, 4, 7)),
    "fortran": np.asfortranarray,
    "byte-swapped": lambda x: x.astype(x.dtype.newbyteorder()),
    "offset": lambda x: np.frombuffer(b"\0" + x.tobytes(), dtype=x.dtype, offset=1).reshape(x.shape),
}


@pytest.mark.pairs
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_numpy_strides_do_not_matter(entry: Entry, view: str, dim: int) -> None:
    x = VIEWS[view](CUBE)
    before = x.copy()
    x.flags.writeable = False
    y = entry(x, dim)
    np.testing.assert_array_equal(y, entry(np.ascontiguousarray(x, dtype=np.float64), dim))
    np.testing.assert_array_equal(x, before)
    np.testing.assert_allclose(y.sum(axis=dim), 1)


TENSOR_VIEWS = {
    "transposed": lambda x: x.permute(2, 0, 1),
    "sliced": lambda x: x[:, ::2, 1:4],
    "expanded": lambda x: x[:1].expand(6, 4, 5),
    "expanded scores": lambda x: x[..., :1].expand(3, 4, 7),
    "channels": lambda x: x.transpose(0, 2).contiguous().transpose(0, 2),
    "offset": lambda x: torch.cat([torch.zeros(1), x.flatten()])[1:].view(x.shape),
}


@pytest.mark.pairs
@pytest.mark.parametrize("view", TENSOR_VIEWS)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_tensor_strides_do_not_matter(entry: Entry, torch_path: str, view: str, dim: int) -> None:
    base = torch.tensor(CUBE, requires_grad=True)
    x = TENSOR_VIEWS[view](base)
    before = x.detach().clone()
    copy = x.detach().clone(memory_format=torch.contiguous_format).requires_grad_()
    y = entry(x, dim)
    torch.testing.assert_close(y, entry(copy, dim), rtol=0, atol=0 if torch_path == "native" else 1e-15)
    assert torch.equal(x, before)
    v = torch.tensor(RNG.normal(size=y.shape))
    (ours,) = torch.autograd.grad(y, x, v.transpose(0, 1).contiguous().transpose(0, 1))
    (expected,) = torch.autograd.grad(entry(copy, dim), copy, v)
    torch.testing.assert_close(ours, expected)


@pytest.mark.pairs
@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_every_rank_and_every_dim_agree_with_rows(entry: Entry, front: Front, rank: int) -> None:
    x = RNG.normal(size=(4, 2, 3, 2, 5)[:rank])
    for dim in range(-rank, rank):
        rows = np.moveaxis(x, dim, -1)
        expected = np.moveaxis(
            front(entry, np.ascontiguousarray(rows).reshape(-1, rows.shape[-1])).reshape(rows.shape), -1, dim
        )
        np.testing.assert_allclose(front(lambda a, dim=dim: entry(a, dim), x), expected, rtol=0, atol=1e-15)


@pytest.mark.pairs
@pytest.mark.parametrize("rank", [2, 3, 4])
def test_a_mask_moves_with_dim(entry: Entry, front: Front, rank: int) -> None:
    x = RNG.normal(size=(4, 2, 3, 5)[:rank])
    mask = RNG.random(x.shape) < 0.6
    for dim in range(rank):
        y = front(lambda a, mask, dim=dim: entry(a, dim, mask=mask), x, mask=mask)
        last = front(entry, np.moveaxis(x, dim, -1).copy(), mask=np.moveaxis(mask, dim, -1).copy())
        np.testing.assert_allclose(y, np.moveaxis(last, -1, dim), rtol=0, atol=1e-15)


HALF = [torch.float16, torch.bfloat16]


@pytest.mark.pairs
@pytest.mark.parametrize("dtype", [*HALF, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("d", [3, 100, 2049])
def test_tensor_types_are_kept_and_sum_to_one(
    entry: Entry, torch_path: str, dtype: torch.dtype, d: int
) -> None:
    x = torch.randn(8, d, generator=torch.Generator().manual_seed(d)).to(dtype).requires_grad_()
    exact = x.detach().double().requires_grad_()
    v = torch.cos(torch.arange(d, dtype=torch.float64)).to(dtype)
    y, expected = entry(x), entry(exact)
    y.backward(v.expand(8, d))
    expected.backward(v.double().expand(8, d))
    assert y.dtype == x.grad.dtype == dtype
    # Each weight is rounded once more, by half a unit in the last place, and so is their sum.
    unit, small = torch.finfo(dtype).eps, 3e-6 if dtype != torch.float64 else 1e-12
    torch.testing.assert_close(y.double(), expected.detach(), rtol=0.6 * unit, atol=small)
    torch.testing.assert_close(y.double().sum(-1), torch.ones(8).double(), rtol=0, atol=2 * unit + small / 3)
    torch.testing.assert_close(x.grad.double(), exact.grad, rtol=unit, atol=2 * small / entry.beta)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4", ">f8", "<f2"])
def test_numpy_types_are_kept(entry: Entry, dtype: str) -> None:
    x = RNG.normal(size=(8, 100)).astype(dtype)
    y = entry(x)
    assert y.dtype.newbyteorder("=") == x.dtype.newbyteorder("=")
    unit = np.finfo(x.dtype).eps
    np.testing.assert_allclose(y.astype(np.float64).sum(-1), 1, atol=unit + 1e-6 * (unit > 1e-8))
    np.testing.assert_allclose(
        y.astype(np.float64), entry(x.astype(np.float64)), rtol=unit, atol=3e-6 if unit > 1e-10 else 1e-12
    )


def test_more_than_float64_raises(entry: Entry) -> None:
    if np.finfo(np.longdouble).bits == 64:
        pytest.skip("long double is float64 here")
    with pytest.raises(TypeError, match="at most float64"):
        entry(np.ones(3, dtype=np.longdouble))


def test_the_result_is_a_new_array(entry: Entry, front: Front) -> None:
    for x in (front.array(np.array([[0.3]])), front.array(np.zeros((2, 0))), front.array(CUBE)):
        y = entry(x)
        assert y is not x
        before = front.numpy(x).copy()
        y[...] = 5.0
        np.testing.assert_array_equal(front.numpy(x), before)


@pytest.mark.pairs
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_half_precision_keeps_zeros_and_groups(torch_path: str, entry: Entry, dtype: torch.dtype) -> None:
    x = torch.tensor(CUBE).to(dtype)
    y, exact = entry(x), entry(x.float())
    assert torch.equal(y == 0, exact.to(dtype) == 0)
    assert torch.equal(y, exact.to(dtype))
