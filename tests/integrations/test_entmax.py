"""The names of entmax: the same problems, certified by their duality gap."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import regmax
from regmax.compat import entmax as compat
from regmax.compat.entmax.mappings import Tsallis


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
    assert torch.equal(compat.entmax_bisect(x, 1), regmax.softmax(x))
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
    omega = Tsallis(1.5)
    expected = regmax.regularized_max(omega, x) + omega.value(one_hot) - (x * one_hot).sum(-1)
    torch.testing.assert_close(compat.entmax15_loss(x, target), expected)
    torch.testing.assert_close(
        compat.sparsemax_bisect_loss(x, target), compat.entmax_bisect_loss(x, target, 2.0)
    )


LOSSES = [
    (compat.SparsemaxLoss, compat.sparsemax_loss),
    (compat.SparsemaxBisectLoss, compat.sparsemax_bisect_loss),
    (compat.Entmax15Loss, compat.entmax15_loss),
    (compat.EntmaxBisectLoss, compat.entmax_bisect_loss),
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


def test_what_is_not_covered_says_what_to_do() -> None:
    x = scores()
    with pytest.raises(TypeError, match=r"one number `alpha` for all rows.*Keep entmax for it"):
        compat.entmax_bisect(x, torch.full((16, 1), 1.5))
    with pytest.raises(ValueError, match=r"`alpha` from 1 \(softmax\) to 2 \(sparsemax\)\. Got 2\.5"):
        compat.entmax_bisect(x, 2.5)
    with pytest.raises(ValueError, match=r"`SparsemaxLoss\(reduction=...\)` must be .* Got 'mean'"):
        compat.SparsemaxLoss(reduction="mean")
    for name in ("normmax_bisect", "NormmaxBisectLoss", "budget_bisect", "BudgetBisect"):
        with pytest.raises(AttributeError, match=f"has no {name}: .* Keep entmax's"):
            getattr(compat, name)
    with pytest.raises(AttributeError, match="has no attribute 'softmax'"):
        _ = compat.softmax
