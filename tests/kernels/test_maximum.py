"""max_Omega from the C++ core: the value of the objective at the weights, and its derivatives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fronts import TIERS, choose_core, forced_tier

import regmax
from regmax.kernels import native, tensors

DOUBLE = torch.float64
OMEGAS = {
    "sparsemax": (None, 0.0),
    "fusedmax": ("lam", 0.1),
    "oscarmax": ("lam", 0.02),
    "sqpnormmax": ("p", 1.5),
}
mappings = pytest.mark.parametrize("name", OMEGAS)


def scores(n: int, d: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, d, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed + d))


def gradients(
    name: str, x: torch.Tensor, v: torch.Tensor, *, shape: tuple[int, ...] = (), **options: Any
) -> list[torch.Tensor]:
    """The value and its gradients: of the scores, of gamma, and of the strength if there is one."""
    strength, value = OMEGAS[name]
    x, gamma = x.clone().requires_grad_(), torch.full(shape, 1.7, dtype=x.dtype, requires_grad=True)
    inputs = [x, gamma]
    omega: Any = name
    if strength is not None:
        theta = torch.full(shape, value, dtype=x.dtype, requires_grad=True)
        omega = regmax.mappings.MAPPINGS[name].regularizer.made(theta)
        inputs.append(theta)
    values = regmax.regularized_max(omega, x, gamma=gamma, **options)
    return [values.detach(), *torch.autograd.grad(values, inputs, v)]


@pytest.mark.pairs
@mappings
@pytest.mark.parametrize("d", [1, 6, 70, 200])
@pytest.mark.parametrize("tier", [None, *TIERS])
@pytest.mark.parametrize("kind", ["whole", "masked", "minus infinity"])
def test_the_core_agrees_with_tensor_operations(
    name: str, d: int, tier: str | None, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, v = scores(9, d), scores(9, 3)[:, 0]
    keep = torch.rand(9, d, generator=torch.Generator().manual_seed(1)) < 0.7
    options: dict[str, Any] = {}
    if kind == "masked":
        options["mask"] = keep
    elif kind == "minus infinity":
        x = x.masked_fill(~keep, -torch.inf)
    with forced_tier(tier):
        ours = gradients(name, x, v, **options)
    choose_core(False, monkeypatch)
    torch.testing.assert_close(ours, gradients(name, x, v, **options), rtol=1e-9, atol=1e-9)


@mappings
@pytest.mark.parametrize("shape", [(), (3, 1, 1), (3, 2, 1)])
def test_strengths_of_every_shape(name: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    x, v = scores(6, 20).reshape(3, 2, 20), scores(6, 3)[:, 0].reshape(3, 2)
    ours = gradients(name, x, v, shape=shape)
    choose_core(False, monkeypatch)
    torch.testing.assert_close(ours, gradients(name, x, v, shape=shape), rtol=1e-9, atol=1e-9)


@mappings
def test_no_tensor_operation_solves(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("the value left the core")

    for function in ("argmax", "jacobian_product", "theta_gradient"):
        monkeypatch.setattr(tensors, function, forbidden)
    monkeypatch.setattr(regmax.frontends.torch, "objective", forbidden)
    gradients(name, scores(4, 30), scores(4, 3)[:, 0])


@mappings
def test_second_derivatives(name: str) -> None:
    omega = regmax.mappings.MAPPINGS[name].regularizer()
    x = scores(3, 6).requires_grad_()
    gamma = torch.tensor(1.3, dtype=DOUBLE, requires_grad=True)

    def function(x: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
        return regmax.regularized_max(omega, x, gamma=gamma)

    assert torch.autograd.gradcheck(function, (x, gamma))
    assert torch.autograd.gradgradcheck(function, (x, gamma))


@mappings
def test_values_of_rows_without_scores_and_of_nan(name: str) -> None:
    x = scores(4, 9).float()
    x[1] = -torch.inf
    x[2, 3] = torch.nan
    values = regmax.regularized_max(name, x)
    assert values[1] == -torch.inf
    assert values[2].isnan()
    assert values[[0, 3]].isfinite().all()
    assert values.dtype == torch.float32
    assert regmax.regularized_max(name, x[:, :0]).tolist() == [-torch.inf] * 4


def test_a_proximal_operator_has_no_value() -> None:
    x = scores(2, 3)
    y, value = torch.empty_like(x), torch.empty(2, dtype=DOUBLE)
    call = 8, native.CODES["prox_tv1d"], x.data_ptr(), y.data_ptr(), 2, 3, 0.1, 1.0, 1
    with pytest.raises(ValueError, match="needs a known kernel"):
        native.core.argmax(
            *call, *(None, None, None, 1, 1, None, None, None, None, None, None), value.data_ptr()
        )
