"""`nn.FenchelYoungLoss` has the conventions of torch's `CrossEntropyLoss`."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from table import DEFAULTS, Entry

import regmax

SHAPES = [(5,), (6, 5), (6, 5, 3), (2, 5, 3, 4)]
WEIGHT = torch.tensor([0.2, 1.0, 3.0, 0.5, 0.0], dtype=torch.float64)


def batch(shape: tuple[int, ...], kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    dim = min(len(shape) - 1, 1)
    if kind == "distributions":
        return x, torch.randn(shape, generator=generator, dtype=torch.float64).softmax(dim)
    target = torch.randint(5, shape[:dim] + shape[dim + 1 :], generator=generator)
    if target.ndim:
        target.reshape(-1)[1] = -100
    return x, target


def both(x: torch.Tensor, target: torch.Tensor, **options: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Value and gradient of torch's loss and of ours."""
    found = []
    for loss in (torch.nn.CrossEntropyLoss(**options), regmax.nn.FenchelYoungLoss("softmax", **options)):
        scores = x.clone().requires_grad_()
        value = loss(scores, target)
        direction = torch.linspace(0.5, 1.5, value.numel(), dtype=x.dtype).reshape(value.shape)
        found.append((value.detach(), torch.autograd.grad(value, scores, direction)[0]))
    return found


@pytest.mark.pairs
@pytest.mark.parametrize(
    ("shape", "kind", "reduction", "weight", "smoothing"),
    list(product(SHAPES, ("classes", "distributions"), ("mean", "sum", "none"), (None, WEIGHT), (0.0, 0.3))),
    ids=str,
)
def test_softmax_has_the_gradients_of_cross_entropy(
    shape: tuple[int, ...], kind: str, reduction: str, weight: torch.Tensor | None, smoothing: float
) -> None:
    x, target = batch(shape, kind)
    (value, gradient), (ours, our_gradient) = both(
        x, target, reduction=reduction, weight=weight, label_smoothing=smoothing
    )
    torch.testing.assert_close(our_gradient, gradient, atol=1e-12, rtol=0)
    assert ours.shape == value.shape
    if kind == "classes" and not smoothing:
        torch.testing.assert_close(ours, value, atol=1e-12, rtol=1e-12)
    else:  # smaller by the target's entropy
        assert bool((ours <= value + 1e-12).all())


def test_smoothed_losses_differ_by_the_targets_entropy() -> None:
    x, target = batch((6, 5), "distributions")
    (value, _), (ours, _) = both(x, target, reduction="none", label_smoothing=0.3)
    q = 0.7 * target + 0.3 / 5
    torch.testing.assert_close(value - ours, -(q * q.log()).sum(-1))


def test_the_loss_is_zero_at_the_target() -> None:
    x, _ = batch((6, 5), "classes")
    for entry in DEFAULTS:
        q = entry(x, 1)
        assert float(regmax.nn.FenchelYoungLoss(entry.omega)(x, q)) < 1e-14


@pytest.mark.parametrize("entry", DEFAULTS, ids=str)
def test_rows_are_those_of_the_function(entry: Entry) -> None:
    x, target = batch((2, 5, 3, 4), "classes")
    mask = torch.rand(2, 5, 3, 4, generator=torch.Generator().manual_seed(1)) < 0.8
    counted = target != -100
    classes = torch.where(counted, target, 0)
    mask.scatter_(1, classes.unsqueeze(1), True)
    found = regmax.nn.FenchelYoungLoss(entry.omega, gamma=0.5, reduction="none")(x, target, mask)
    expected = regmax.fenchel_young_loss(entry.omega, x, classes, 1, gamma=0.5, mask=mask)
    assert torch.equal(found, torch.where(counted, expected, 0.0))
    mean = regmax.nn.FenchelYoungLoss(entry.omega, gamma=0.5)(x, target, mask)
    torch.testing.assert_close(mean, found.sum() / counted.sum())


def test_labels_are_smoothed_over_the_kept_classes() -> None:
    x = torch.tensor([[0.3, -torch.inf, 0.2, 0.9]], requires_grad=True)
    mask = torch.tensor([[True, True, True, False]])
    loss = regmax.nn.FenchelYoungLoss("sparsemax", label_smoothing=0.2)(x, torch.tensor([0]), mask)
    assert bool(loss.isfinite())
    loss.backward()
    torch.testing.assert_close(x.grad, torch.tensor([[0.55 - 0.9, 0.0, 0.45 - 0.1, 0.0]]))


def test_ignored_rows_have_no_gradient_and_may_have_any_index() -> None:
    x = torch.zeros(3, 4, requires_grad=True)
    loss = regmax.nn.FenchelYoungLoss("sparsemax", ignore_index=77)
    loss(x, torch.tensor([0, 77, 1])).backward()
    assert not x.grad[1].any()
    assert x.grad[0].any()
    assert bool(loss(x, torch.tensor([77, 77, 77])).isnan())  # a mean of nothing, as in torch


def test_a_modules_strengths_are_learned() -> None:
    loss = regmax.nn.FenchelYoungLoss(regmax.nn.Sqpnormmax(p=1.5, learnable=True))
    names = {name for name, _ in loss.named_parameters()}
    assert names == {"mapping.strengths.raw_p", "mapping.strengths.raw_gamma"}
    loss(torch.randn(6, 4), torch.arange(6) % 4).backward()
    assert all(parameter.grad.abs() > 0 for parameter in loss.parameters())


def test_gamma_may_be_a_parameter_or_a_buffer() -> None:
    gamma = torch.nn.Parameter(torch.tensor(0.5))
    loss = regmax.nn.FenchelYoungLoss("sparsemax", gamma=gamma)
    loss(torch.randn(6, 4), torch.arange(6) % 4).backward()
    assert gamma.grad is not None
    assert set(regmax.nn.FenchelYoungLoss(gamma=torch.tensor(0.5)).state_dict()) == {"gamma"}


def test_an_annealer_of_the_attention_leaves_the_loss() -> None:
    model = torch.nn.ModuleList([regmax.nn.Fusedmax(), regmax.nn.FenchelYoungLoss("sparsemax")])
    schedule = regmax.nn.AnnealGamma(model, start=4.0, end=1.0, steps=2)
    assert len(schedule._mappings) == 1


def test_the_repr_names_the_mapping_and_the_changed_options() -> None:
    loss = regmax.nn.FenchelYoungLoss("sparsemax", gamma=0.5, reduction="sum")
    assert repr(loss) == "FenchelYoungLoss('sparsemax', gamma=0.5, reduction=sum)"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"mapping": torch.softmax}, TypeError, r"needs a mapping whose Omega is known"),
        ({"mapping": torch.nn.Softmax(-1)}, TypeError, r"needs a mapping whose Omega is known.*Got Softmax"),
        ({"mapping": "hardmax"}, ValueError, r"must be one of softmax"),
        ({"reduction": "average"}, ValueError, r"must be 'mean', 'sum' or 'none'. Got 'average'"),
        ({"label_smoothing": 1.5}, ValueError, r"must be in \[0, 1\]. Got 1.5"),
    ],
)
def test_bad_options_raise_when_the_loss_is_made(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        regmax.nn.FenchelYoungLoss(**options)


def test_weights_of_another_length_raise() -> None:
    loss = regmax.nn.FenchelYoungLoss(weight=torch.ones(3))
    with pytest.raises(ValueError, match=r"needs one weight per class, 4. Got shape \(3,\)"):
        loss(torch.randn(2, 4), torch.tensor([0, 1]))
