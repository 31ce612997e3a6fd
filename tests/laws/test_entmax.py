"""entmax joins softmax and sparsemax continuously, in its weights, its gradients and its Omega."""

from __future__ import annotations

import exact
import mpmath
import numpy as np
import pytest
import torch
from fronts import Front

import regmax
from regmax import NegativeEntropy, NegativeTsallisEntropy, SquaredNorm

DOUBLE = torch.float64
NEAR_ONE = (1e-12, 1e-9, 1e-6, 1e-3)


def scores(n: int, d: int, seed: int = 0) -> np.ndarray:
    return 2 * np.random.default_rng(seed).normal(size=(n, d))


def limit_at_one(y: torch.Tensor) -> torch.Tensor:
    """dy / dalpha at alpha = 1, (h log y - y sum h log y) / 2 with h = -y log y."""
    term = -y * y.log() ** 2
    return (term - y * term.sum(-1, keepdim=True)) / 2


def test_the_ends_are_softmax_and_sparsemax(front: Front) -> None:
    x = scores(20, 9)
    np.testing.assert_allclose(front(regmax.entmax, x, alpha=1.0), front(regmax.softmax, x), rtol=1e-14)
    np.testing.assert_allclose(
        front(regmax.entmax, x, alpha=2.0), front(regmax.sparsemax, x), rtol=0, atol=1e-15
    )


@pytest.mark.pairs
@pytest.mark.parametrize("step", NEAR_ONE)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_nothing_cancels_near_softmax(front: Front, step: float, dtype: str) -> None:
    """Against 50 digits, relative to each weight: (a x - tau)^(1/a), a = alpha - 1, loses all digits here."""
    x = scores(6, 8).astype(dtype)
    alpha = 1 + step
    y = front(regmax.entmax, x, alpha=alpha)
    expected = np.array([[float(w) for w in exact.solve("entmax", row.tolist(), alpha)] for row in x])
    np.testing.assert_allclose(y, expected, rtol=1e-13 if dtype == "float64" else 4e-6)


def test_alpha_changes_the_weights_continuously(front: Front) -> None:
    x = scores(10, 12)
    alphas = 1 + np.linspace(0, 1, 201)
    weights = np.stack([front(regmax.entmax, x, alpha=float(alpha)) for alpha in alphas])
    assert np.abs(np.diff(weights, axis=0)).max() < 0.02
    supports = (weights > 0).sum(-1)
    assert (np.diff(supports, axis=0) <= 0).mean() > 0.99
    assert supports[0].min() == 12


@pytest.mark.parametrize("alpha", [1.0, 1 + 1e-9, 1 + 1e-6])
def test_the_gradient_of_alpha_has_its_limit_at_softmax(alpha: float) -> None:
    x, v = torch.tensor(scores(5, 7)), torch.tensor(scores(5, 7, seed=1))
    theta = torch.tensor(alpha, dtype=DOUBLE, requires_grad=True)
    (gradient,) = torch.autograd.grad((regmax.entmax(x, alpha=theta) * v).sum(), theta)
    expected = (limit_at_one(torch.softmax(x, -1)) * v).sum()
    torch.testing.assert_close(gradient, expected, rtol=1e-4 if alpha > 1 + 1e-8 else 1e-7, atol=0)


@pytest.mark.parametrize("alpha", [1 + 1e-5, 1.2, 1.5, 1.9])
def test_the_gradient_of_alpha_is_the_exact_one(alpha: float) -> None:
    """Against a difference quotient of weights with 50 digits."""
    x, v = scores(3, 6), scores(3, 6, seed=1)
    step = mpmath.mpf("1e-15")
    expected = 0.0
    for row, direction in zip(x.tolist(), v.tolist(), strict=True):
        above, below = (exact.solve("entmax", row, mpmath.mpf(alpha) + sign * step) for sign in (1, -1))
        pairs = zip(direction, above, below, strict=True)
        expected += float(mpmath.fsum(number * (a - b) for number, a, b in pairs) / (2 * step))
    theta = torch.tensor(alpha, dtype=DOUBLE, requires_grad=True)
    weights = regmax.entmax(torch.tensor(x), alpha=theta)
    (gradient,) = torch.autograd.grad((weights * torch.tensor(v)).sum(), theta)
    assert gradient.item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("alpha", [1.01, 1.3, 1.5, 2.0])
def test_many_rows_agree_with_bisection(alpha: float) -> None:
    """Values to 1e-6 and gradients to 1e-5 in float32, against a bisection in float64 and its implicit derivatives."""
    x, v = (torch.tensor(scores(200, 33, seed)) for seed in (2, 3))
    a = alpha - 1
    z = a * x
    low, high = z.amax(-1, keepdim=True) - 1, z.amax(-1, keepdim=True)
    for _ in range(100):
        tau = (low + high) / 2
        over = (z - tau).clamp(min=0).pow(1 / a).sum(-1, keepdim=True) > 1
        low, high = torch.where(over, tau, low), torch.where(over, high, tau)
    y = (z - low).clamp(min=0).pow(1 / a)
    s = torch.where(y > 0, y ** (1 - a), 0)
    t = s / s.sum(-1, keepdim=True)
    h = -torch.where(y > 0, y * y.log(), 0)
    x_grad = s * v - t * (s * v).sum(-1, keepdim=True)
    alpha_grad = ((y - t) / a**2 + (h - t * h.sum(-1, keepdim=True)) / a) * v
    ours, theta = x.float().requires_grad_(), torch.full((200, 1), alpha, requires_grad=True)
    weights = regmax.entmax(ours, alpha=theta)
    torch.testing.assert_close(weights.double(), y, rtol=0, atol=1e-6)
    gradients = torch.autograd.grad(weights, (ours, theta), v.float())
    torch.testing.assert_close(gradients[0].double(), x_grad, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradients[1][:, 0].double(), alpha_grad.sum(-1), rtol=1e-5, atol=2e-5)


def test_omega_is_continuous_in_alpha() -> None:
    y = regmax.softmax(scores(5, 7))
    np.testing.assert_allclose(NegativeTsallisEntropy(1.0).value(y), NegativeEntropy().value(y), rtol=1e-15)
    np.testing.assert_allclose(
        NegativeTsallisEntropy(1 + 1e-9).value(y), NegativeEntropy().value(y), rtol=1e-7
    )
    np.testing.assert_allclose(NegativeTsallisEntropy(2.0).value(y), SquaredNorm().value(y) - 0.5, atol=1e-15)


@pytest.mark.parametrize("alpha", [1.0, 1 + 1e-6, 1.4, 2.0])
def test_the_max_is_differentiated_in_alpha(alpha: float) -> None:
    """By the envelope theorem it is -dOmega/dalpha at the weights; in float32 as in float64."""
    x = torch.tensor(scores(4, 6))
    gradients = []
    for dtype in (torch.float32, DOUBLE):
        theta = torch.tensor(alpha, dtype=dtype, requires_grad=True)
        value = regmax.regularized_max(NegativeTsallisEntropy(theta), x.to(dtype)).sum()
        gradients.append(torch.autograd.grad(value, theta)[0].item())
    y = regmax.entmax(x, alpha=alpha).numpy()
    omega = [NegativeTsallisEntropy(min(max(alpha + h, 1.0), 2.0)).value(y).sum() for h in (1e-6, -1e-6)]
    width = min(alpha + 1e-6, 2.0) - max(alpha - 1e-6, 1.0)
    assert gradients[1] == pytest.approx(-(omega[0] - omega[1]) / width, rel=1e-4)
    assert gradients[0] == pytest.approx(gradients[1], rel=1e-5)


def test_a_learnable_alpha_may_start_at_its_bounds() -> None:
    for start in (1.0, 1.5, 2.0):
        module = regmax.nn.Entmax(alpha=start, learnable="alpha")
        assert module.alpha.item() == pytest.approx(start, abs=1e-5)
        assert 1 <= module.alpha.item() <= 2
    with pytest.raises(ValueError, match=r"A learnable `alpha` must start from 1 to 2\. Got 2\.5\."):
        regmax.nn.Entmax(alpha=2.5, learnable="alpha")
