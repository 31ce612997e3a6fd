"""Gradients of strengths from the C++ core: on every tier and under masks they are those of tensor operations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fronts import TIERS, choose_core, forced_tier

import regmax
from regmax.kernels import native, tensors

DOUBLE = torch.float64
CASES = {
    "sparsemax": (None, 0.0),
    "fusedmax": ("lam", 0.1),
    "oscarmax": ("lam", 0.02),
    "sqpnormmax": ("p", 1.5),
    "sqpnormmax-other": ("p", 1.3),
}
mappings = pytest.mark.parametrize("case", CASES)


def scores(n: int, d: int, seed: int = 0, spread: float = 1.0) -> torch.Tensor:
    return spread * torch.randn(n, d, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed + d))


def gradients(
    case: str,
    x: torch.Tensor,
    v: torch.Tensor,
    *,
    shape: tuple[int, ...] = (),
    gamma: float = 1.7,
    **options: Any,
) -> tuple[torch.Tensor, ...]:
    """Of the scores, of gamma, and of the mapping's own strength if it has one."""
    name, value = CASES[case]
    x = x.clone().requires_grad_()
    strengths = {"gamma": torch.full(shape, gamma, dtype=x.dtype)}
    if name is not None:
        strengths[name] = torch.full(shape, value, dtype=x.dtype)
    for strength in strengths.values():
        strength.requires_grad_()
    y = getattr(regmax, case.split("-")[0])(x, **strengths, **options)
    return torch.autograd.grad(y, (x, *strengths.values()), v)


def both_paths(case: str, monkeypatch: pytest.MonkeyPatch, *arguments: Any, **options: Any) -> Any:
    """The core's gradients and those of tensor operations."""
    ours = gradients(case, *arguments, **options)
    with monkeypatch.context() as patch:
        choose_core(False, patch)
        return ours, gradients(case, *arguments, **options)


@pytest.mark.pairs
@mappings
@pytest.mark.parametrize("d", [1, 5, 63, 64, 65, 129, 200])
@pytest.mark.parametrize("tier", [None, *TIERS])
def test_the_core_agrees_with_tensor_operations(
    case: str, d: int, tier: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with forced_tier(tier):
        for spread in (1.0, 0.1):
            x, v = scores(11, d, spread=spread), scores(11, d, 1)
            ours, expected = both_paths(case, monkeypatch, x, v)
            torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE], ids=str)
def test_clusters_of_many_weights_are_ranked(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CASES, "oscarmax", ("lam", 2e-5))
    x, v = scores(6, 200, spread=2e-3), scores(6, 200, 1)
    assert ((regmax.oscarmax(x, lam=2e-5, gamma=1.7) > 0).sum(-1) > 32).all()
    ours = gradients("oscarmax", x.to(dtype), v.to(dtype))
    choose_core(False, monkeypatch)
    expected = gradients("oscarmax", x.to(dtype).double(), v.to(dtype).double())
    for a, b in zip(ours, expected, strict=True):
        assert (a - b).abs().max() <= (1e-9 if dtype == DOUBLE else 2e-3) * b.abs().max()
    assert expected[2].abs() > 1


@pytest.mark.parametrize("case", ["fusedmax", "oscarmax"])
@pytest.mark.parametrize("d", [16, 40, 128, 300])
@pytest.mark.parametrize("kind", ["normal", "repeats", "ends"])
def test_rows_with_few_and_with_many_weights(
    case: str, d: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few weights are listed, and their rows are summed one per lane; the others of the group are not."""
    spreads = torch.logspace(-2, 0.5, 33, dtype=DOUBLE)[torch.arange(33) * 7 % 33][:, None]  # mixed
    x, v = spreads * scores(33, d), scores(33, d, 1)
    if kind == "repeats":
        x = x.repeat_interleave(3, dim=1)[:, :d]
    elif kind == "ends":
        x[:, 0] += spreads[:, 0]
        x[:, -1] += spreads[:, 0]
    name, value = CASES[case]
    counts = (getattr(regmax, case)(x, gamma=1.7, **{str(name): value}) > 0).sum(-1)
    assert (counts <= 16).any()
    assert d == 16 or (counts > 16).any()
    ours, expected = both_paths(case, monkeypatch, x, v, shape=(33, 1))
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kernel", ["fusedmax", "oscarmax"])
@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE], ids=str)
@pytest.mark.parametrize("tier", [None, *TIERS])
def test_listed_weights_change_no_bit(kernel: str, dtype: torch.dtype, tier: str | None) -> None:
    n, d, words = 50, 100, 2
    x, v = scores(n, d, spread=0.5).to(dtype), scores(n, d, 1).to(dtype)
    x[7], x[8, 3], x[9, 5] = 0.0, torch.nan, -torch.inf
    bits = torch.empty(3, n, words, dtype=torch.int64)
    y, listed = torch.empty_like(x), torch.full((n, 16), torch.nan, dtype=dtype)
    support, joined, kept = (own.data_ptr() for own in bits)
    code, sizes = native.CODES[kernel], (n, d, 0.02, 1.5, 1, support, joined, None, 1, 1, None, None, kept)
    with forced_tier(tier):
        given = None, None, None, None, False, listed.data_ptr()
        native.core.argmax(x.itemsize, code, x.data_ptr(), y.data_ptr(), *sizes, *given)
        for row, own in zip(y, listed, strict=True):
            weights = row[row > 0]
            few = weights if len(weights) <= 16 else weights[:0]
            assert torch.equal(own, torch.cat([few, own.new_zeros(16 - len(few))]))
        results = []
        for pointer in (None, listed.data_ptr()):
            out, grads = torch.empty_like(x), torch.empty(2, n, dtype=DOUBLE)
            arrays = y.data_ptr(), v.data_ptr(), out.data_ptr()
            numbers = grads[0].data_ptr(), grads[1].data_ptr(), None, pointer
            native.core.jacobian_product(x.itemsize, code, *arrays, *sizes, *numbers)
            results.append((out, grads))
    for ours, expected in zip(*results, strict=True):
        assert torch.equal(ours.nan_to_num(nan=-7), expected.nan_to_num(nan=-7))
    with pytest.raises(ValueError, match="needs a known kernel"):  # listed weights need the support
        native.core.argmax(x.itemsize, code, x.data_ptr(), y.data_ptr(), *sizes[:5], *(None,) * 8, *given)


@mappings
def test_they_are_finite_differences(case: str) -> None:
    """Of rows that are longer than gradcheck's."""
    name, value = CASES[case]
    x, v, step = scores(4, 100), scores(4, 100, 1), 1e-6
    _, by_gamma, *by_theta = gradients(case, x, v)
    function = getattr(regmax, case.split("-")[0])
    values = {"gamma": 1.7} if name is None else {"gamma": 1.7, name: value}
    for strength, ours in zip(values, (by_gamma, *by_theta), strict=True):
        up, down = (function(x, **{**values, strength: values[strength] + sign * step}) for sign in (1, -1))
        slope = ((up - down) / (2 * step) * v).sum()
        torch.testing.assert_close(ours, slope, rtol=1e-6, atol=1e-6)
        assert abs(slope) > 1e-3


@mappings
@pytest.mark.parametrize("shape", [(), (1,), (3, 1, 1), (2, 1), (3, 2, 1), (3, 2)])
def test_a_strength_for_all_rows_per_head_and_per_row(
    case: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, v = scores(6, 40).reshape(3, 2, 40), scores(6, 40, 1).reshape(3, 2, 40)
    ours, expected = both_paths(case, monkeypatch, x, v, shape=shape)
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-10)
    assert ours[1].shape == shape


@mappings
@pytest.mark.parametrize("kind", ["prefix", "scattered", "minus infinity"])
def test_deleted_positions_are_no_neighbours(case: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    n, d = 9, 130
    x, v = scores(n, d, spread=0.3), scores(n, d, 1)
    generator = torch.Generator().manual_seed(5)
    keep = torch.rand(n, d, generator=generator) < 0.6
    if kind == "prefix":
        keep = torch.arange(d) < torch.randint(1, d, (n, 1), generator=generator)
    keep[0] = False
    if kind == "minus infinity":
        ours, expected = both_paths(case, monkeypatch, x.masked_fill(~keep, -torch.inf), v)
    else:
        ours, expected = both_paths(case, monkeypatch, x, v, mask=keep)
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-10)
    alone = [gradients(case, x[i][keep[i]], v[i][keep[i]]) for i in range(1, n)]
    torch.testing.assert_close(ours[1], sum(own[1] for own in alone), rtol=1e-9, atol=1e-9)


@mappings
def test_float32_agrees_with_float64(case: str) -> None:
    """Also for scores far from zero, where -<grad x, x> / gamma would lose digits."""
    x, v = scores(50, 128).float(), scores(50, 128, 1).float()
    far = x + 1e4
    for own in (x, far):
        expected = gradients(case, own.double(), v.double(), shape=(50, 1))
        ours = gradients(case, own, v, shape=(50, 1))
        for a, b in zip(ours, expected, strict=True):
            assert (a - b).abs().max() <= 1e-4 * (1 + b.abs().max())


@mappings
def test_a_row_of_nan_spoils_only_its_own_strength(case: str) -> None:
    x, v = scores(3, 20), scores(3, 20, 1)
    x[1, 4] = torch.nan
    _, *strengths = gradients(case, x, v, shape=(3, 1))
    for own in strengths:
        assert own[1].isnan().all()
        assert own[[0, 2]].isfinite().all()


@pytest.mark.parametrize(("case", "value"), [("fusedmax", 0.0), ("oscarmax", 0.0), ("sqpnormmax", 2.0)])
def test_a_strength_without_effect_has_a_gradient(
    case: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CASES, case, (CASES[case][0], value))
    ours, expected = both_paths(case, monkeypatch, scores(5, 30), scores(5, 30, 1))
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-10)
    assert ours[2].abs() > 1e-3


@mappings
def test_no_tensor_operation_solves_or_differentiates(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("a learned strength left the core")

    for name in ("argmax", "jacobian_product", "theta_gradient", "omega_gradient"):
        monkeypatch.setattr(tensors, name, forbidden)
    for shape in ((), (4, 1)):
        gradients(case, scores(4, 30), scores(4, 30, 1), shape=shape)
    name = CASES[case][0]
    if name is not None:
        module = getattr(regmax.nn, case.split("-")[0].capitalize())(learnable=True)
        module(scores(4, 30).float()).square().sum().backward()
        assert all(own.grad is not None for own in module.parameters())


@pytest.mark.parametrize("kernel", ["prox_tv1d", "prox_oscar"])
@pytest.mark.parametrize("gamma", [1.0, 2.5])
def test_proximal_operators_too(kernel: str, gamma: float) -> None:
    x, v = scores(7, 33), scores(7, 33, 1)
    z = native.argmax(kernel, x, theta=0.05, gamma=gamma)
    out, grads = torch.empty_like(x), torch.empty(2, 7, dtype=DOUBLE)
    addresses = (array.data_ptr() for array in (z, v, out))
    optional = (None, None, None, 1, 1, None, None, None)
    native.core.jacobian_product(
        8,
        native.CODES[kernel],
        *addresses,
        7,
        33,
        0.05,
        gamma,
        1,
        *optional,
        *(own.data_ptr() for own in grads),
    )
    expected = tensors.jacobian_product(kernel, z, v, theta=0.05, gamma=gamma)
    torch.testing.assert_close(out, expected)
    by_theta = -gamma * (expected * tensors.theta_gradient(kernel, z, theta=0.05)).sum(-1)
    torch.testing.assert_close(grads[0], by_theta)
    step = 1e-6
    up, down = (native.argmax(kernel, x, theta=0.05, gamma=gamma + sign * step) for sign in (1, -1))
    np.testing.assert_allclose(grads[1], ((up - down) / (2 * step) * v).sum(-1), rtol=1e-5, atol=1e-6)


@mappings
@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE], ids=str)
def test_results_that_bypass_the_caches_are_the_same(case: str, dtype: torch.dtype) -> None:
    """The core writes large products from a copy of each group of rows, which the strengths' gradients read."""
    few, repeats, d = 37, 150, 128
    assert few * repeats * d * 4 > 2**21  # runtime/tuning.hpp: streamed_bytes
    x, v = scores(few, d).to(dtype), scores(few, d, 1).to(dtype)
    many = gradients(case, x.repeat(repeats, 1), v.repeat(repeats, 1), shape=(few * repeats, 1))
    for large, small in zip(many, gradients(case, x, v, shape=(few, 1)), strict=True):
        assert torch.equal(large, small.repeat(repeats, 1))
