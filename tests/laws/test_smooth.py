"""Any differentiable Omega, given only by its value or also by gradient and Hessian."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from long_cases import represented
from torch.autograd import gradcheck, gradgradcheck

import regmax

DOUBLE = torch.float64
X = torch.randn(6, 7, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))


class Tsallis(regmax.SmoothRegularizer):
    """(sum y^a - 1) / (a (a - 1)), whose mapping is a-entmax."""

    def __init__(self, a: float) -> None:
        self.a = a

    def value(self, y: torch.Tensor) -> torch.Tensor:
        """The negative entropy."""
        return ((y**self.a).sum(-1) - 1) / (self.a * (self.a - 1))


class HalfSquaredPNorm(regmax.SmoothRegularizer):
    """The squared p-norm as a user would write it."""

    p = 1.5

    def value(self, y: torch.Tensor) -> torch.Tensor:
        """Half of the squared norm."""
        return (y**self.p).sum(-1) ** (2 / self.p) / 2


class WithDerivatives(HalfSquaredPNorm):
    """The same with the paper's gradient and Hessian, and a count of the calls."""

    def __init__(self) -> None:
        self.calls = {"gradient": 0, "hessian": 0}

    def gradient(self, y: torch.Tensor) -> torch.Tensor:
        """As in Section 3.1."""
        self.calls["gradient"] += 1
        return y ** (self.p - 1) * self._norm(y) ** (2 - self.p)

    def hessian(self, y: torch.Tensor) -> torch.Tensor:
        """As in Section 3.1."""
        self.calls["hessian"] += 1
        p, norm = self.p, self._norm(y)
        u = ((2 - p) / norm ** (2 * p - 2)).sqrt() * y ** (p - 1)
        return torch.diag_embed((p - 1) * norm ** (2 - p) * y ** (p - 2)) + u[..., :, None] * u[..., None, :]

    def _norm(self, y: torch.Tensor) -> torch.Tensor:
        return (y**self.p).sum(-1, keepdim=True) ** (1 / self.p)


class Quadratic(regmax.SmoothRegularizer):
    """y' A y / 2 with a correlated A: neither separable nor symmetric under permutations."""

    matrix = torch.eye(7, dtype=DOUBLE) + 0.5 * torch.diag(torch.ones(6, dtype=DOUBLE), 1)

    def value(self, y: torch.Tensor) -> torch.Tensor:
        """Half of the squared length of A y."""
        return ((y @ self.matrix.to(y)) ** 2).sum(-1) / 2


def entmax(x: np.ndarray, a: float) -> np.ndarray:
    """a-entmax by bisection on its threshold: y = ((a - 1) x - tau)_+^(1 / (a - 1))."""
    z = (a - 1) * x
    low, high = z.max(-1, keepdims=True) - 1, z.max(-1, keepdims=True)
    for _ in range(100):
        tau = (low + high) / 2
        y = np.maximum(z - tau, 0) ** (1 / (a - 1))
        over = y.sum(-1, keepdims=True) > 1
        low, high = np.where(over, tau, low), np.where(over, high, tau)
    return y / y.sum(-1, keepdims=True)


@pytest.mark.parametrize("a", [1.3, 1.5, 1.8, 2.0])
@pytest.mark.parametrize("gamma", [0.5, 1.0])
def test_tsallis_entropies_give_entmax(a: float, gamma: float) -> None:
    y = regmax.regularized_argmax(Tsallis(a), X, gamma=gamma)
    np.testing.assert_allclose(y, entmax(X.numpy() / gamma, a), rtol=0, atol=1e-6)
    np.testing.assert_allclose(y.sum(-1), 1, atol=1e-12)
    assert torch.all(y >= 0)


@pytest.mark.parametrize("omega", [HalfSquaredPNorm(), WithDerivatives()], ids=["value", "derivatives"])
def test_a_squared_p_norm_written_by_hand_is_sqpnormmax(omega: Any) -> None:
    x = X.clone().requires_grad_()
    y, expected = regmax.regularized_argmax(omega, x), regmax.sqpnormmax(x, p=1.5)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-6)
    v = torch.linspace(-1, 1, 7, dtype=DOUBLE).expand_as(x)
    torch.testing.assert_close(
        torch.autograd.grad(y, x, v), torch.autograd.grad(expected, x, v), rtol=0, atol=1e-4
    )


def test_derivatives_that_are_given_are_used() -> None:
    omega = WithDerivatives()
    x = X.clone().requires_grad_()
    regmax.regularized_argmax(omega, x).sum().backward()
    assert omega.calls["gradient"] > 0
    assert omega.calls["hessian"] > 0


OMEGAS = [
    pytest.param(Quadratic(), id="quadratic"),
    pytest.param(Tsallis(1.5), id="tsallis"),
    pytest.param(Tsallis(2.0), id="gini"),
]


@pytest.mark.parametrize("omega", OMEGAS)
def test_first_derivatives_agree_with_finite_differences(omega: Any) -> None:
    x, v, h = X, torch.linspace(-1, 1, 7, dtype=DOUBLE).expand_as(X), 1e-4

    def function(x: torch.Tensor) -> torch.Tensor:
        return regmax.regularized_argmax(omega, x, gamma=0.8)

    expected = (function(x + h * v) - function(x - h * v)) / (2 * h)
    leaf = x.clone().requires_grad_()
    (ours,) = torch.autograd.grad(function(leaf), leaf, v)  # J is symmetric
    torch.testing.assert_close(ours, expected, rtol=0, atol=2e-3)
    assert expected.abs().max() > 0.1


@pytest.mark.parametrize("omega", OMEGAS)
def test_forward_mode_agrees_with_reverse_mode(omega: Any) -> None:
    v = torch.linspace(-1, 1, 7, dtype=DOUBLE).expand_as(X)

    def function(x: torch.Tensor) -> torch.Tensor:
        return regmax.regularized_argmax(omega, x)

    product = torch.func.jvp(function, (X,), (v,))[1]
    torch.testing.assert_close(product, torch.func.vjp(function, X)[1](v)[0])
    assert product.abs().max() > 0.1


def test_second_derivatives_of_an_interior_solution() -> None:
    """Small scores, so that every weight is positive and the mapping has no kinks."""
    x = (0.1 * X[:2]).requires_grad_()
    omega = Tsallis(1.5)
    omega.tol = 1e-15

    def function(x: torch.Tensor) -> torch.Tensor:
        return regmax.regularized_argmax(omega, x)

    assert torch.all(function(x) > 0)
    assert gradcheck(function, x, eps=1e-4, atol=1e-4)
    assert gradgradcheck(function, x, eps=1e-4, atol=1e-3)


def test_the_gradient_of_its_max_is_its_argmax() -> None:
    omega = Tsallis(1.5)
    x = X.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(regmax.regularized_max(omega, x, gamma=0.6).sum(), x)
    torch.testing.assert_close(gradient, regmax.regularized_argmax(omega, x, gamma=0.6), rtol=0, atol=1e-6)
    gap = regmax.duality_gap(omega, x, torch.full_like(x, 1 / 7), gamma=0.6)
    assert torch.all(gap > 1e-3)


@pytest.mark.parametrize("omega", OMEGAS[1:])
def test_masked_positions_are_deleted(omega: Any) -> None:
    mask = torch.tensor([True, False, True, True, False, True, True])
    y = regmax.regularized_argmax(omega, X, mask=mask)
    torch.testing.assert_close(y[:, mask], regmax.regularized_argmax(omega, X[:, mask]), rtol=0, atol=1e-6)
    assert torch.all(y[:, ~mask] == 0)
    hidden = X.masked_fill(~mask, -torch.inf)
    torch.testing.assert_close(regmax.regularized_argmax(omega, hidden), y, rtol=0, atol=1e-9)
    x = X.clone().requires_grad_()
    regmax.regularized_argmax(omega, x, mask=mask)[:, 0].sum().backward()
    assert torch.all(x.grad[:, ~mask] == 0)
    assert x.grad.abs().max() > 1e-3


def test_strange_rows() -> None:
    x = torch.tensor(
        [[1.0, torch.nan, 0.0], [0.5, 0.2, 0.1], [1.0, 0.0, torch.inf], [-torch.inf] * 3], dtype=DOUBLE
    )
    y = regmax.regularized_argmax(Tsallis(1.5), x)
    assert torch.all(torch.isnan(y[[0, 2]]))
    assert torch.equal(y[3], torch.zeros(3, dtype=DOUBLE))
    torch.testing.assert_close(y[1].sum(), torch.tensor(1.0, dtype=DOUBLE))
    assert regmax.regularized_argmax(Tsallis(1.5), X[:0]).shape == (0, 7)
    assert regmax.regularized_argmax(Tsallis(1.5), X[:, :0]).shape == (6, 0)
    assert torch.equal(regmax.regularized_argmax(Tsallis(1.5), X[:, :1]), torch.ones(6, 1, dtype=DOUBLE))


def test_other_dims_ranks_and_types() -> None:
    omega = Tsallis(1.5)
    y = regmax.regularized_argmax(omega, X.T.reshape(7, 2, 3), 0)
    torch.testing.assert_close(y.reshape(7, 6).T, regmax.regularized_argmax(omega, X), rtol=0, atol=1e-9)
    assert regmax.regularized_argmax(omega, X.float()).dtype == torch.float32
    assert regmax.regularized_argmax(omega, X.bfloat16()).dtype == torch.bfloat16
    array = regmax.regularized_argmax(omega, X.numpy())
    assert isinstance(array, np.ndarray)
    np.testing.assert_allclose(array, regmax.regularized_argmax(omega, X), rtol=0, atol=1e-12)


def test_rows_that_do_not_converge_are_counted_in_a_warning() -> None:
    omega = Tsallis(1.5)
    omega.max_iter = 2
    with pytest.warns(
        UserWarning, match=r"`Tsallis`: 6 of 6 rows.*tol=1e-12.*max_iter=2 .*Raise `max_iter` or `tol`"
    ):
        y = regmax.regularized_argmax(omega, X)
    torch.testing.assert_close(y.sum(-1), torch.ones(6, dtype=DOUBLE))


def test_rows_that_converge_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for omega in (Tsallis(1.5), Quadratic(), HalfSquaredPNorm()):
            regmax.regularized_argmax(omega, X)
            regmax.regularized_argmax(omega, 1e3 * X)
            regmax.regularized_argmax(omega, 1e-3 * X)


class Wrong(regmax.SmoothRegularizer):
    """Forgets to sum."""

    def value(self, y: torch.Tensor) -> torch.Tensor:
        """Returns more than one number per row."""
        return y**2


class Broken(regmax.SmoothRegularizer):
    """Has a bug."""

    def value(self, y: torch.Tensor) -> torch.Tensor:
        """Raises."""
        return y @ torch.ones(3, dtype=y.dtype)


def test_a_value_of_the_wrong_shape_raises() -> None:
    with pytest.raises(
        ValueError, match=r"`Wrong.value\(y\)` must give one number per row, shape \(6,\).*Got \(6, 7\)"
    ):
        regmax.regularized_argmax(Wrong(), X)


def test_an_error_inside_value_is_seen() -> None:
    with pytest.raises(RuntimeError, match=r"size mismatch|shapes cannot be multiplied"):
        regmax.regularized_argmax(Broken(), X)


def test_a_regularizer_without_value_cannot_be_made() -> None:
    with pytest.raises(TypeError, match=r"abstract method '?value"):
        regmax.SmoothRegularizer()  # type: ignore[abstract]


class Counted(Tsallis):
    """Counts the rows whose Omega is evaluated."""

    rows = 0

    def value(self, y: torch.Tensor) -> torch.Tensor:
        """The negative entropy."""
        self.rows += y.shape[:-1].numel()
        return super().value(y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_converged_rows_are_not_evaluated_again(dtype: torch.dtype) -> None:
    """About 26 evaluations per row, forward and backward. A few slow rows need four times as many."""
    x = torch.randn(10240, 20, generator=torch.Generator().manual_seed(1), dtype=dtype).requires_grad_()
    omega = Counted(1.3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = regmax.regularized_argmax(omega, x)
        y.square().sum().backward()
    expected = entmax(x.detach().double().numpy(), 1.3)
    np.testing.assert_allclose(y.detach().numpy(), expected, rtol=0, atol=1e-9 if dtype == DOUBLE else 1e-7)
    assert omega.rows < 32 * len(x)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 10.0, 1e3, 1e6])
@pytest.mark.parametrize("a", [1.1, 1.3, 1.8, 2.0])
def test_support_and_weights_are_entmaxs_at_every_scale(a: float, scale: float) -> None:
    x = scale * torch.randn(500, 20, generator=torch.Generator().manual_seed(2), dtype=DOUBLE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = regmax.regularized_argmax(Tsallis(a), x).numpy()
    expected = entmax(x.numpy(), a)
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-8)
    clear = (expected == 0) | (expected > 1e-12)
    np.testing.assert_array_equal((y > 0)[clear], (expected > 0)[clear])


class Entropy(regmax.SmoothRegularizer):
    """Infinitely steep at 0."""

    def value(self, y: torch.Tensor) -> torch.Tensor:
        """Shannon's, negative."""
        return torch.xlogy(y, y).sum(-1)


def test_an_infinitely_steep_omega_is_solved_from_the_inside() -> None:
    mask = torch.tensor([True, False, True, True, False, True, True])
    for scale in (1e-3, 1.0, 30.0):
        y = regmax.regularized_argmax(Entropy(), scale * X, mask=mask)
        torch.testing.assert_close(y, regmax.softmax(scale * X, mask=mask), rtol=0, atol=1e-11)


class OnTheSimplex(regmax.SmoothRegularizer):
    """Convex on the simplex, not outside of it."""

    def value(self, y: torch.Tensor) -> torch.Tensor:
        """The squared norm, and a constant."""
        return (y**2).sum(-1) - 2 * y.sum(-1) ** 2


def test_convexity_is_needed_on_the_simplex_only() -> None:
    torch.testing.assert_close(
        regmax.regularized_argmax(OnTheSimplex(), X), regmax.sparsemax(X, gamma=2.0), rtol=0, atol=1e-8
    )


class Concave(regmax.SmoothRegularizer):
    """The sign forgotten."""

    def __init__(self, coupled: bool) -> None:
        self.coupled = coupled

    def value(self, y: torch.Tensor) -> torch.Tensor:
        """Concave, separable or not."""
        return -(y**2).sum(-1) - (y[..., 0] * y[..., 1] if self.coupled else 0.0)


@pytest.mark.parametrize("coupled", [False, True])
@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 1e3])
def test_a_concave_omega_raises(coupled: bool, scale: float) -> None:
    with pytest.raises(
        ValueError, match=r"`Concave.value\(y\)` must be convex on the simplex. Got negative curvature in"
    ):
        regmax.regularized_argmax(Concave(coupled), scale * X)


def test_the_first_use_warns_of_nothing() -> None:
    """In a new process: torch warns of its deprecated functions once."""
    program = """
import warnings; warnings.simplefilter("error")
import torch, regmax
class Omega(regmax.SmoothRegularizer):
    def value(self, y): return (y**1.5).sum(-1) ** (4 / 3)
x = torch.randn(3, 5, requires_grad=True)
regmax.regularized_argmax(Omega(), x).square().sum().backward()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@pytest.mark.parametrize("backend", represented(["eager", "inductor"], by=["eager"]))
def test_a_compiled_model_breaks_its_graph_there(backend: str) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return (regmax.regularized_argmax(Tsallis(1.5), 2 * x, gamma=0.7) * x).sum(-1).sin()

    def run(function: Any) -> tuple[torch.Tensor, torch.Tensor]:
        x = X.clone().requires_grad_()
        y = function(x)
        return y.detach(), torch.autograd.grad(y.sum(), x)[0]

    torch.testing.assert_close(run(torch.compile(model, backend=backend)), run(model))
