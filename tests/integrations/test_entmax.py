"""The names of entmax: the same problems, by kernels for alpha in [1, 2] and by roots elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import regmax
from regmax.compat import entmax as compat


def scores(n: int = 16, d: int = 9) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def threshold_form(x: Tensor, alpha: float) -> Tensor:
    """alpha-entmax by bisection on tau in y = ((alpha - 1) x - tau)_+^(1 / (alpha - 1))."""
    x = (alpha - 1) * x
    low, high = x.amax(-1, keepdim=True) - 1, x.amax(-1, keepdim=True)
    for _ in range(80):
        tau = (low + high) / 2
        over = (x - tau).clamp(min=0).pow(1 / (alpha - 1)).sum(-1, keepdim=True) > 1
        low, high = torch.where(over, tau, low), torch.where(over, high, tau)
    return (x - low).clamp(min=0).pow(1 / (alpha - 1))


@pytest.mark.parametrize("alpha", [1.2, 1.5, 1.75, 2.0])
def test_alpha_entmax_has_the_form_of_a_threshold(alpha: float) -> None:
    x = scores()
    y = compat.entmax_bisect(x, alpha)
    torch.testing.assert_close(y, threshold_form(x, alpha), rtol=0, atol=1e-10)
    assert torch.equal(y == 0, threshold_form(x, alpha) == 0)


def test_the_two_ends_are_softmax_and_sparsemax() -> None:
    x = scores()
    torch.testing.assert_close(compat.entmax_bisect(x, 1), regmax.softmax(x), rtol=0, atol=1e-15)
    assert torch.equal(compat.entmax_bisect(x, 2.0), regmax.sparsemax(x))
    assert torch.equal(compat.sparsemax(x, 0, 3), regmax.sparsemax(x, 0))
    assert torch.equal(compat.sparsemax_bisect(x), regmax.sparsemax(x))
    assert torch.equal(compat.entmax15(x, 0), compat.entmax_bisect(x, 1.5, 0))


def test_modules_are_their_functions() -> None:
    x = scores()
    assert torch.equal(compat.Sparsemax(0, k=2)(x), compat.sparsemax(x, 0))
    assert torch.equal(compat.SparsemaxBisect(0)(x), compat.sparsemax(x, 0))
    assert torch.equal(compat.Entmax15(0)(x), compat.entmax15(x, 0))
    assert torch.equal(compat.EntmaxBisect(1.3, 0)(x), compat.entmax_bisect(x, 1.3, 0))


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_a_loss_has_the_weights_minus_the_target_as_gradient(alpha: float) -> None:
    x, target = scores().requires_grad_(), torch.arange(16) % 9
    loss = compat.entmax_bisect_loss(x, target, alpha)
    assert (loss >= 0).all()
    (gradient,) = torch.autograd.grad(loss.sum(), x)
    one_hot = torch.nn.functional.one_hot(target, 9)
    torch.testing.assert_close(gradient, compat.entmax_bisect(x, alpha) - one_hot, rtol=0, atol=1e-9)


def test_losses_agree_where_they_meet() -> None:
    x, target = scores(), torch.arange(16) % 9
    cross_entropy = torch.nn.functional.cross_entropy(x, target, reduction="none")
    torch.testing.assert_close(compat.entmax_bisect_loss(x, target, 1.0), cross_entropy)
    one_hot = torch.nn.functional.one_hot(target, 9).double()
    omega = regmax.NegativeTsallisEntropy(1.5)
    expected = regmax.regularized_max(omega, x) - (x * one_hot).sum(-1)
    torch.testing.assert_close(compat.entmax15_loss(x, target), expected)
    torch.testing.assert_close(
        compat.sparsemax_bisect_loss(x, target), compat.entmax_bisect_loss(x, target, 2.0)
    )


LOSSES = [
    (compat.SparsemaxLoss, compat.sparsemax_loss),
    (compat.SparsemaxBisectLoss, compat.sparsemax_bisect_loss),
    (compat.Entmax15Loss, compat.entmax15_loss),
    (compat.EntmaxBisectLoss, compat.entmax_bisect_loss),
    (compat.NormmaxBisectLoss, compat.normmax_bisect_loss),
]


@pytest.mark.parametrize(("module", "function"), LOSSES)
@pytest.mark.parametrize("ignored", [-100, 3])
def test_ignored_targets_do_not_count(module: type, function: object, ignored: int) -> None:
    x, target = scores(), torch.arange(16) % 9
    target[[2, 5]] = ignored
    counts = target != ignored
    expected = function(x[counts], target[counts])
    torch.testing.assert_close(module(ignore_index=ignored)(x, target), expected.mean())
    torch.testing.assert_close(module(ignore_index=ignored, reduction="sum")(x, target), expected.sum())
    each = module(ignore_index=ignored, reduction="none")(x, target)
    torch.testing.assert_close(each[counts], expected)
    assert not each[~counts].any()


def test_wrong_arguments_raise_in_one_line() -> None:
    x = scores()
    with pytest.raises(ValueError, match=r"`entmax_bisect\(X, alpha\)` needs a positive `alpha`\. Got 0\.$"):
        compat.entmax_bisect(x, 0)
    with pytest.raises(TypeError, match=r"needs a number or a tensor `alpha`\. Got str\.$"):
        compat.entmax_bisect(x, "1.5")
    with pytest.raises(ValueError, match=r"`normmax_bisect\(X, alpha\)` must not be 1, where .* Got 1\.$"):
        compat.normmax_bisect(x, 1.0)
    with pytest.raises(ValueError, match=r"`SparsemaxLoss\(reduction=...\)` must be .* Got 'mean'"):
        compat.SparsemaxLoss(reduction="mean")
    with pytest.raises(AttributeError, match="has no attribute 'softmax'"):
        _ = compat.softmax


@pytest.mark.parametrize("alpha", [0.3, 0.9, 2.5, 4.0])
def test_alphas_outside_the_kernels_bounds_satisfy_their_conditions(alpha: float) -> None:
    """x - grad Omega(y) is one number on the support, and not larger elsewhere."""
    x = scores()
    y = compat.entmax_bisect(x, alpha)
    torch.testing.assert_close(y.sum(-1), torch.ones(16, dtype=torch.float64))
    slack = x - torch.where(y > 0, y, 1.0) ** (alpha - 1) / (alpha - 1)
    tau = (slack * (y > 0)).sum(-1, keepdim=True) / (y > 0).sum(-1, keepdim=True)
    torch.testing.assert_close(torch.where(y > 0, slack, tau), tau.expand_as(x), rtol=0, atol=1e-10)
    assert bool((torch.where(y > 0, tau, x) <= tau + 1e-12).all())
    assert bool((y > 0).all()) == (alpha < 1)


@pytest.mark.parametrize("alpha", [1.3, 2.0, 5.0])
def test_normmax_satisfies_its_conditions(alpha: float) -> None:
    x = scores()
    y = compat.normmax_bisect(x, alpha)
    torch.testing.assert_close(y.sum(-1), torch.ones(16, dtype=torch.float64))
    norm = (y**alpha).sum(-1, keepdim=True) ** (1 / alpha)
    slack = x - (y / norm) ** (alpha - 1)
    tau = (slack * y).sum(-1, keepdim=True)
    torch.testing.assert_close(torch.where(y > 0, slack, tau), tau.expand_as(x), rtol=0, atol=1e-9)
    assert bool((torch.where(y > 0, tau, x) <= tau + 1e-9).all())


def test_a_budget_is_spent_within_its_caps() -> None:
    x = scores()
    budget = torch.linspace(0, 9, 16, dtype=torch.float64)[:, None]
    y = compat.budget_bisect(x, budget)
    torch.testing.assert_close(y.sum(-1, keepdim=True), budget)
    assert bool(((y >= 0) & (y <= 1)).all())
    torch.testing.assert_close(compat.BudgetBisect(1)(x), regmax.sparsemax(x))
    assert gradcheck(
        compat.budget_bisect, (x[:4].requires_grad_(), torch.tensor(2.3).double().requires_grad_())
    )


@pytest.mark.parametrize("function", [compat.entmax_bisect, compat.normmax_bisect])
@pytest.mark.parametrize("values", [(0.4, 0.8), (1.3, 1.7), (2.4, 3.0)])
def test_alpha_and_scores_get_gradients_of_both_orders(function: Any, values: tuple[float, ...]) -> None:
    if function is compat.normmax_bisect and values[0] < 1:
        pytest.skip("the norm is not convex")
    x = 0.4 * scores(2, 5)
    alpha = torch.tensor(values, dtype=torch.float64)[:, None]
    assert gradcheck(function, (x.requires_grad_(), alpha.requires_grad_()))
    assert gradgradcheck(function, (x, alpha))


def test_alphas_inside_and_outside_the_bounds_mix() -> None:
    x = scores(6, 9)
    alpha = torch.tensor([0.5, 1.0, 1.3, 1.5, 2.0, 2.6], dtype=torch.float64)
    mixed = compat.entmax_bisect(x, alpha[:, None])
    for row, weights, number in zip(x, mixed, alpha.tolist(), strict=True):
        torch.testing.assert_close(weights, compat.entmax_bisect(row, number), rtol=0, atol=1e-12)
    along = compat.entmax_bisect(x.T, alpha[None], dim=0)
    torch.testing.assert_close(along, mixed.T, rtol=0, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.5, 1.5, 2.5])
def test_scores_of_minus_infinity_have_no_weight(alpha: float) -> None:
    x = scores()
    x[:, 4:] = -torch.inf
    for function in (compat.entmax_bisect, compat.normmax_bisect):
        y = function(x, alpha)
        assert not y[:, 4:].any()
        torch.testing.assert_close(y[:, :4], function(x[:, :4].clone(), alpha), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("function", "module"), [(compat.sparsemax, compat.Sparsemax), (compat.entmax15, compat.Entmax15)]
)
def test_the_size_of_the_support_is_returned_on_request(function: Any, module: Any) -> None:
    x = scores()
    y, size = function(x, 0, return_support_size=True)
    assert torch.equal(y, function(x, 0))
    assert torch.equal(size, (y > 0).sum(0, keepdim=True))
    assert torch.equal(module(0, return_support_size=True)(x)[1], size)
    target = torch.arange(16) % 9
    losses = {compat.sparsemax: compat.SparsemaxLoss, compat.entmax15: compat.Entmax15Loss}
    loss, sizes = losses[function](return_support_size=True)(x, target)
    assert loss == losses[function]()(x, target)
    assert torch.equal(sizes, (function(x) > 0).sum(-1, keepdim=True))


def test_a_loss_is_differentiated_in_alpha() -> None:
    x, target = scores(3, 5).requires_grad_(), torch.tensor([0, 3, 2])
    alpha = torch.tensor([[1.3], [1.6], [2.4]], dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x, alpha: compat.entmax_bisect_loss(x, target, alpha), (x, alpha))
