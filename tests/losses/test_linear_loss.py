"""`linear_fenchel_young_loss` is the loss of a linear layer's scores, in less memory: values, gradients, errors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from table import DEFAULTS, Entry
from torch import Tensor
from torch.nn import functional

import regmax
from regmax.frontends.torch import linear_loss, linear_rows

CLASSES, FEATURES = 700, 12
EACH = pytest.mark.parametrize("entry", DEFAULTS, ids=str)


def problem(
    n: int = 150, scale: float = 1.0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """hidden, weight, target, bias; few weights are nonzero at scale 1, most at 0.001."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(n, FEATURES, generator=generator, dtype=dtype)
    weight = scale * torch.randn(CLASSES, FEATURES, generator=generator, dtype=dtype)
    bias = scale * torch.randn(CLASSES, generator=generator, dtype=dtype)
    target = torch.randint(CLASSES, (n,), generator=generator)
    target[::7] = -100
    return hidden.requires_grad_(), weight.requires_grad_(), target, bias.requires_grad_()


def whole(
    mapping: Any, hidden: Tensor, weight: Tensor, target: Tensor, bias: Tensor, **options: Any
) -> Tensor:
    return regmax.nn.FenchelYoungLoss(mapping, **options)(functional.linear(hidden, weight, bias), target)


def check(mapping: Any, scale: float, reduction: str, **options: Any) -> None:
    hidden, weight, target, bias = problem(scale=scale)
    found = regmax.linear_fenchel_young_loss(
        hidden, weight, target, bias, mapping=mapping, reduction=reduction, **options
    )
    expected = whole(mapping, hidden, weight, target, bias, reduction=reduction, **options)
    torch.testing.assert_close(found, expected)
    direction = torch.linspace(0.5, 1.5, found.numel(), dtype=found.dtype).reshape(found.shape)
    inputs = (hidden, weight, bias)
    gradients = torch.autograd.grad(expected, inputs, direction)
    for _ in range(2):  # the second backward pass does not have the forward pass's gradients
        again = torch.autograd.grad(found, inputs, direction, retain_graph=True)
        torch.testing.assert_close(again, gradients, atol=1e-11, rtol=1e-11)


@pytest.mark.pairs
@EACH
@pytest.mark.parametrize("scale", [1.0, 0.05, 0.001])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_it_is_the_loss_of_the_layers_scores(
    entry: Entry, scale: float, reduction: str, torch_path: str
) -> None:
    check(entry.omega, scale, reduction, gamma=0.7)


@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_sparse_and_dense_rows_in_one_block(reduction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_rows, "_GROUP", 5 * CLASSES)
    hidden, weight, target, bias = problem()
    with torch.no_grad():
        hidden[20:60] *= 0.001
        bias.mul_(0.001)
    kinds = set()
    counted = linear_rows._few

    def few(*arguments: Any) -> Any:
        result = counted(*arguments)
        kinds.add(result is None)
        return result

    monkeypatch.setattr(linear_rows, "_few", few)
    found = regmax.linear_fenchel_young_loss(hidden, weight, target, bias, reduction=reduction)
    expected = whole("sparsemax", hidden, weight, target, bias, reduction=reduction)
    inputs = (hidden, weight, bias)
    gradients = torch.autograd.grad(found.sum(), inputs)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected.sum(), inputs), atol=1e-11, rtol=1e-11)
    assert kinds == {True, False}


def test_scores_are_never_stored_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = []
    original = linear_loss.Inputs.buffer

    def buffer(self: Any, size: int) -> Tensor:
        rows.append(size)
        return original(self, size)

    monkeypatch.setattr(linear_loss.Inputs, "buffer", buffer)
    hidden, weight, _, _ = problem(n=4096)
    target = torch.arange(4096) % CLASSES
    regmax.linear_fenchel_young_loss(hidden, weight, target).backward()
    assert rows == [256]


@pytest.mark.parametrize("scale", [1.0, 0.001])
def test_learned_strengths_have_gradients(scale: float) -> None:
    hidden, weight, target, bias = problem(scale=scale)
    for reduction in ("mean", "none"):
        found, expected = [], []
        for results, call in (
            (found, regmax.linear_fenchel_young_loss),
            (expected, lambda h, w, t, b, **options: whole(options.pop("mapping"), h, w, t, b, **options)),
        ):
            mapping = regmax.nn.Sqpnormmax(p=1.5, learnable=True).double()
            loss = call(hidden, weight, target, bias, mapping=mapping, gamma=0.5, reduction=reduction)
            (loss * torch.linspace(1, 2, loss.numel(), dtype=loss.dtype).reshape(loss.shape)).sum().backward()
            results.extend(parameter.grad for parameter in mapping.parameters())
        torch.testing.assert_close(found, expected)


def test_second_derivatives() -> None:
    hidden, weight, target, bias = problem(n=6, scale=0.2)
    inputs = tuple(part.detach()[:9].requires_grad_() for part in (hidden, weight, bias))
    classes = target % 9

    def call(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return regmax.linear_fenchel_young_loss(hidden, weight, classes, bias, reduction="sum")

    assert torch.autograd.gradcheck(call, inputs)
    assert torch.autograd.gradgradcheck(call, inputs)


def test_transforms_and_compilers_get_the_same_loss() -> None:
    hidden, weight, target, bias = (part.detach() for part in problem(n=20))
    expected = regmax.linear_fenchel_young_loss(hidden, weight, target, bias)

    def call(hidden: Tensor) -> Tensor:
        return regmax.linear_fenchel_young_loss(hidden, weight, target, bias)

    torch.testing.assert_close(torch.func.grad_and_value(call)(hidden)[1], expected)
    torch.testing.assert_close(torch.compile(call, backend="eager")(hidden), expected)


def test_tied_weights_get_both_gradients() -> None:
    generator = torch.Generator().manual_seed(1)
    words = torch.randint(CLASSES, (4, 9), generator=generator)
    gradients = []
    for own in (True, False):
        torch.manual_seed(0)
        embedding = torch.nn.Embedding(CLASSES, FEATURES)
        loss = regmax.nn.LinearFenchelYoungLoss(FEATURES, CLASSES, bias=False)
        loss.weight = embedding.weight
        hidden = embedding(words[:, :-1]).tanh()
        if own:
            loss(hidden, words[:, 1:]).backward()
        else:
            scores = functional.linear(hidden, embedding.weight).movedim(-1, 1)
            regmax.nn.FenchelYoungLoss("sparsemax")(scores, words[:, 1:]).backward()
        gradients.append(embedding.weight.grad)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("frozen", ["hidden", "weight", "bias"])
def test_inputs_without_gradient_get_none(frozen: str) -> None:
    hidden, weight, target, bias = problem()
    named = {"hidden": hidden, "weight": weight, "bias": bias}
    named[frozen].requires_grad_(False)
    regmax.linear_fenchel_young_loss(hidden, weight, target, bias).backward()
    assert {name for name, tensor in named.items() if tensor.grad is None} == {frozen}
    with torch.no_grad():
        assert not regmax.linear_fenchel_young_loss(hidden, weight, target, bias).requires_grad


def test_a_forbidden_target_has_an_infinite_loss_and_a_finite_gradient() -> None:
    hidden, weight, target, bias = problem(n=5)
    with torch.no_grad():
        bias[3] = -torch.inf
    target[:] = torch.tensor([3, 1, 2, 3, 4])
    loss = regmax.linear_fenchel_young_loss(hidden, weight, target, bias, reduction="none")
    assert loss.isposinf().tolist() == [True, False, False, True, False]
    gradients = torch.autograd.grad(loss.sum(), (hidden, weight, bias))
    expected = whole("sparsemax", hidden, weight, target, bias, reduction="sum")
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, (hidden, weight, bias)))
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_states_of_nan_give_nan() -> None:
    hidden, weight, target, bias = problem(n=6)
    target[:] = 1
    with torch.no_grad():
        hidden[2, 0] = torch.nan
    loss = regmax.linear_fenchel_young_loss(hidden, weight, target, bias, reduction="none")
    assert loss.isnan().tolist() == [False, False, True, False, False, False]


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_autocast_computes_in_half_precision(reduction: str) -> None:
    hidden, weight, target, bias = problem(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        loss = regmax.linear_fenchel_young_loss(hidden, weight, target, bias, reduction=reduction)
    loss.sum().backward()
    exact = regmax.linear_fenchel_young_loss(hidden.detach(), weight, target, bias, reduction=reduction)
    torch.testing.assert_close(loss.float(), exact, atol=0.1, rtol=0.02)
    assert weight.grad.dtype == torch.float32


def test_a_batch_of_ignored_rows_has_no_mean_and_no_gradient() -> None:
    hidden, weight, target, bias = problem(n=4)
    target[:] = -100
    loss = regmax.linear_fenchel_young_loss(hidden, weight, target, bias)
    assert bool(loss.isnan())  # as in torch
    total = regmax.linear_fenchel_young_loss(hidden, weight, target, bias, reduction="sum")
    total.backward()
    assert float(total.detach()) == 0
    assert not weight.grad.any()


def test_an_own_regularizer_has_a_linear_loss() -> None:
    class Gini(regmax.SmoothRegularizer):
        def value(self, y: Tensor) -> Tensor:
            return (y * y).sum(-1) / 2

    hidden, weight, target, bias = problem(n=5)
    found = regmax.linear_fenchel_young_loss(hidden, weight[:20], target % 20, bias[:20], mapping=Gini())
    expected = regmax.linear_fenchel_young_loss(hidden, weight[:20], target % 20, bias[:20])
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_an_own_regularizer_with_learned_parameters_raises() -> None:
    class Learned(regmax.SmoothRegularizer):
        factor = torch.tensor(1.0, requires_grad=True)

        def value(self, y: Tensor) -> Tensor:
            return self.factor * (y * y).sum(-1)

    with pytest.raises(TypeError, match=r"does not learn a regularizer's own parameters. Got Learned"):
        regmax.linear_fenchel_young_loss(H, W, T, mapping=Learned())


def test_the_module_learns_and_shows_its_options() -> None:
    torch.manual_seed(0)
    loss = regmax.nn.LinearFenchelYoungLoss(4, 50, "sparsemax", gamma=0.5)
    assert repr(loss) == "LinearFenchelYoungLoss(in_features=4, n_classes=50, mapping='sparsemax', gamma=0.5)"
    assert {name for name, _ in loss.named_parameters()} == {"weight", "bias"}
    hidden, target = torch.randn(60, 4), torch.arange(60) % 5
    optimizer = torch.optim.SGD(loss.parameters(), lr=0.5)
    first = None
    for _ in range(30):
        optimizer.zero_grad()
        value = loss(hidden, target)
        first = float(value.detach()) if first is None else first
        value.backward()
        optimizer.step()
    assert float(loss(hidden, target).detach()) < 0.8 * first
    assert regmax.nn.LinearFenchelYoungLoss(4, 50, bias=False).bias is None


H, W, T = torch.zeros(2, 3), torch.zeros(5, 3), torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (
            (H, W, torch.tensor([0])),
            {},
            ValueError,
            r"one class index for every state, shape \(2,\). Got \(1,\)",
        ),
        ((H, W.t(), T), {}, ValueError, r"weight \(classes, features\). Got \(2, 3\) and \(3, 5\)"),
        ((H, W, T, torch.zeros(3)), {}, ValueError, r"`bias` must have shape \(5,\). Got \(3,\)"),
        ((H, W, T.float()), {}, TypeError, r"needs class indices, integers. Got torch.float32"),
        ((H, W.double(), T), {}, TypeError, r"one floating-point type. Got torch.float32 and torch.float64"),
        ((H.numpy(), W, T), {}, TypeError, r"`hidden` must be a torch tensor. Got ndarray"),
        ((H, W, T + 4), {}, IndexError, r"must lie in 0 to 4. Got 5"),
        ((H, W, T), {"reduction": "max"}, ValueError, r"must be 'mean', 'sum' or 'none'"),
        ((H, W, T), {"gamma": 0.0}, ValueError, r"gamma` must be positive and finite. Got 0.0"),
        ((H, W, T), {"gamma": torch.ones(2)}, ValueError, r"strengths that all rows share.*Got shape \(2,\)"),
        ((H, W, T), {"mapping": torch.softmax}, TypeError, r"needs a mapping whose Omega is known"),
    ],
)
def test_bad_arguments_raise_in_one_line(
    arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        regmax.linear_fenchel_young_loss(*arguments, **options)
    assert "\n" not in str(caught.value)
