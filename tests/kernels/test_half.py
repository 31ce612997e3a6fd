"""float16 and bfloat16: the core converts rows block by block, and backward reads no half-precision weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fronts import TIERS, forced_tier
from table import TABLE, Entry

import regmax
from regmax.kernels import native

HALF = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
MAPPINGS = pytest.mark.parametrize("entry", [entry for entry in TABLE if entry.sparse], ids=str)


def all_numbers(dtype: torch.dtype) -> torch.Tensor:
    """Every number of a half-precision type."""
    return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)


@HALF
def test_every_number_is_converted_exactly(dtype: torch.dtype) -> None:
    """prox_tv1d with lam = 0 returns its rows: each number alone in its row."""
    x = all_numbers(dtype)
    x = x[x.isfinite()][:, None].contiguous()
    y = torch.empty_like(x)
    code = {torch.float16: 2, torch.bfloat16: 3}[dtype]
    y32 = torch.empty(x.shape, dtype=torch.float32)
    optional = (None, None, None, 1, 1, None, None, None, None, None, y32.data_ptr())
    arguments = x.data_ptr(), y.data_ptr(), len(x), 1, 0.0, 1.0, 1
    native.core.argmax(code, native.CODES["prox_tv1d"], *arguments, *optional)
    assert torch.equal(y32, x.float())
    assert torch.equal(y, x)


@pytest.mark.pairs
@HALF
@MAPPINGS
@pytest.mark.parametrize("tier", [None, *TIERS])
@pytest.mark.parametrize(("d", "gamma"), [(1, 1.0), (7, 2.5), (150, 1.0)])
def test_weights_and_gradients_are_those_of_float32(
    dtype: torch.dtype, entry: Entry, tier: str | None, d: int, gamma: float
) -> None:
    """To the bit: the same kernel computes on the same numbers, and rounds once."""
    generator = torch.Generator().manual_seed(d)
    x = torch.randn(37, d, generator=generator).to(dtype).requires_grad_()
    v = torch.randn(37, d, generator=generator).to(dtype)
    full = x.detach().float().requires_grad_()
    with forced_tier(tier):
        y, expected = entry(x, gamma=gamma), entry(full, gamma=gamma)
        (ours,) = torch.autograd.grad(y, x, v)
        (theirs,) = torch.autograd.grad(expected, full, v.float())
    assert torch.equal(y, expected.to(dtype))
    # The weights' order of summation may differ from that of a call with another layout of bits.
    torch.testing.assert_close(ours.float(), theirs.to(dtype).float(), rtol=1e-2, atol=1e-5)


@pytest.mark.pairs
@HALF
@MAPPINGS
@pytest.mark.parametrize("shape", [(), (37, 1)], ids=["shared", "per row"])
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_of_strengths_are_those_of_float32(
    dtype: torch.dtype, entry: Entry, shape: tuple[int, ...], masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit, from the float32 weights; no float32 copy of the scores is made."""
    generator = torch.Generator().manual_seed(3)
    spread = (
        1 + 100 * entry.parameters.get("lam", 0.0) * entry.row.clusters
    )  # else all weights are one cluster
    x, v = ((spread * torch.randn(37, 90, generator=generator)).to(dtype) for _ in range(2))
    x[4, 7] = -torch.inf
    mask = torch.rand(37, 90, generator=generator) < 0.7 if masked else None
    results = []
    for scores, weighting in ((x.float(), v.float()), (x, v)):
        scores = scores.requires_grad_()
        learned = {
            name: torch.full(shape, value, requires_grad=True)
            for name, value in {"gamma": 1.5, **entry.parameters}.items()
        }
        if scores.dtype == dtype:
            monkeypatch.setattr(torch.Tensor, "float", None)
        y = entry(scores, mask=mask, **learned)
        results.append((y, *torch.autograd.grad(y, (scores, *learned.values()), weighting)))
    expected, ours = results
    assert ours[0].dtype == ours[1].dtype == dtype
    assert torch.equal(ours[0], expected[0].to(dtype))
    assert torch.equal(ours[1], expected[1].to(dtype))
    for found, wanted in zip(ours[2:], expected[2:], strict=True):
        assert found.dtype == torch.float32
        assert torch.equal(found, wanted)
        assert wanted.abs().max() > 1e-3


@HALF
@MAPPINGS
def test_masks_and_special_rows(dtype: torch.dtype, entry: Entry) -> None:
    x = torch.randn(40, 70, generator=torch.Generator().manual_seed(0)).to(dtype)
    mask = torch.rand(40, 70, generator=torch.Generator().manual_seed(1)) < 0.6
    mask[3] = False
    x[5, 4], x[6, 6], x[7] = torch.nan, torch.inf, -torch.inf
    mask[5, 4] = mask[6, 6] = True
    grads = []
    for scores in (x.clone(), x.float()):
        scores.requires_grad_()
        y = entry(scores, mask=mask)
        (grad,) = torch.autograd.grad(y, scores, torch.ones_like(y).cumsum(-1))
        grads.append((y.detach().to(dtype), grad.to(dtype)))
    for ours, expected in zip(*grads, strict=True):
        torch.testing.assert_close(ours, expected, equal_nan=True, rtol=2e-2, atol=1e-2)
    assert grads[0][1][5][mask[5]].isnan().all()


@HALF
def test_fine_clusters_survive_the_rounding_of_weights(dtype: torch.dtype) -> None:
    """Weights that are equal only after rounding are no cluster: backward must not average over them."""
    d = 300
    x = torch.linspace(0, 1e-1, d).to(dtype).requires_grad_()
    full = x.detach().float().requires_grad_()
    v = torch.randn(d, generator=torch.Generator().manual_seed(2)).to(dtype)
    for function in (regmax.sparsemax, lambda t: regmax.oscarmax(t, lam=1e-6), regmax.sqpnormmax):
        (ours,) = torch.autograd.grad(function(x), x, v)
        (expected,) = torch.autograd.grad(function(full), full, v.float())
        torch.testing.assert_close(ours.float(), expected, rtol=2e-2, atol=1e-2)


@HALF
def test_no_float32_copy_of_the_rows_is_made(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("the rows were converted in Python")

    x = torch.randn(4, 30).to(dtype).requires_grad_()
    monkeypatch.setattr(torch.Tensor, "float", forbidden)
    monkeypatch.setattr(torch.Tensor, "to", forbidden)
    for function in (regmax.sparsemax, regmax.fusedmax, regmax.oscarmax, regmax.sqpnormmax):
        y = function(x)
        assert y.dtype == dtype
        torch.autograd.grad(y, x, torch.ones_like(y))


@HALF
@pytest.mark.parametrize("name", ["fusedmax", "sqpnormmax"])
@pytest.mark.parametrize("learned", [False, True])
def test_second_derivatives(dtype: torch.dtype, name: str, learned: bool) -> None:
    x = torch.tensor([[0.5, 0.25, -1.0, 0.375]]).to(dtype).requires_grad_()
    full = x.detach().float().requires_grad_()
    gamma = torch.tensor(1.25, requires_grad=True) if learned else 1.25
    grads = []
    for scores in (x, full):
        y = getattr(regmax, name)(scores, gamma=gamma)
        (first,) = torch.autograd.grad((y * y).sum(), scores, create_graph=True)
        (second,) = torch.autograd.grad((first * first).sum(), scores)
        grads.append(second.float())
    torch.testing.assert_close(*grads, rtol=5e-2, atol=2e-2)


def test_the_core_refuses_a_product_without_weights_or_bits() -> None:
    x = torch.zeros(2, 3, dtype=torch.float16)
    arguments = x.data_ptr(), x.data_ptr(), x.data_ptr(), 2, 3, 1.5, 1.0, 1
    for kernel in ("sparsemax", "sqpnormmax"):
        with pytest.raises(ValueError, match="every array"):
            native.core.jacobian_product(2, native.CODES[kernel], *arguments)


@pytest.mark.pairs
@MAPPINGS
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dim", [0, -1])
def test_float16_arrays_are_read_by_the_core(
    entry: Entry, masked: bool, dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights are those of float32, rounded once; no float32 copy of the scores is made."""
    generator = np.random.default_rng(4)
    x = generator.normal(size=(70, 50)).astype(np.float16)
    x[3, 5], x[8, 9], x[11] = np.nan, np.inf, -np.inf
    mask = generator.random(x.shape) < 0.7 if masked else None
    gamma = np.linspace(0.5, 2.0, x.shape[1 - dim % 2])
    strengths = {"gamma": np.expand_dims(gamma, dim)}
    expected = entry(x.astype(np.float32), dim, mask=mask, **strengths).astype(np.float16)
    seen: list[np.dtype[Any]] = []
    argmax = native.argmax

    def watched(kernel: str, scores: Any, *arguments: Any, **strengths: Any) -> Any:
        seen.append(scores.dtype)
        return argmax(kernel, scores, *arguments, **strengths)

    monkeypatch.setattr(native, "argmax", watched)
    y = entry(x, dim, mask=mask, **strengths)
    assert seen == [np.float16]
    assert y.dtype == np.float16
    np.testing.assert_array_equal(y, expected)


def test_products_of_float16_arrays_are_refused() -> None:
    x = np.zeros((2, 3), np.float16)
    with pytest.raises(TypeError, match=r"needs rows .* in float32 or float64. Got float16"):
        native.jacobian_product("sparsemax", x, x)
