"""Words divided among heads: the smallest change of the output, compared with every choice one by one."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
import transformers
from hugging import MODELS

from regmax.integrations import transformers as sparse
from regmax.integrations.transformers.allocation import allocate
from regmax.integrations.transformers.calibration import Calibrate, LayerSums, effect
from regmax.integrations.transformers.effects import PROBES, directions, model_output
from regmax.integrations.transformers.implementations import CALIBRATING
from regmax.integrations.transformers.interface import mask
from regmax.mappings import named

POINTS, HEADS, BEFORE = 3, 2, 9.0

Drawn = tuple[list[LayerSums], list[torch.Tensor]]


def drawn(seed: int, apart: bool = True) -> Drawn:
    """Two layers whose effects fall as words are added; those of different heads are orthogonal or correlated."""
    generator = torch.Generator().manual_seed(seed)
    layers, effects = [], []
    for layer in range(2):
        words, falls = torch.rand(2, POINTS, HEADS, generator=generator, dtype=torch.float64).sort(1)[0]
        words, falls = 1 + 7 * words, falls.flip(0)
        ones, queries = torch.ones(HEADS, dtype=torch.float64), torch.full((HEADS,), 4.0, dtype=torch.float64)
        layers.append(LayerSums(falls, words * 4, ones, queries * BEFORE, queries))
        shape = (HEADS, 2 * HEADS)
        axes = (
            torch.eye(2 * HEADS)[layer * HEADS :][:HEADS]
            if apart
            else torch.randn(shape, generator=generator)
        )
        effects.append(falls.float()[..., None] * axes)
    return layers, effects


def cost(made: Drawn, chosen: list[list[int | None]]) -> tuple[float, float]:
    """The squared change of the output, and the mean number of words."""
    change, words = torch.zeros(2 * HEADS), []
    for layer, effects, heads in zip(*made, chosen, strict=True):
        for head, i in enumerate(heads):
            words.append(BEFORE if i is None else float(layer.supports()[i, head]))
            change = change + (0.0 if i is None else effects[i, head])
    return float(change.square().sum()), sum(words) / len(words)


def every_choice() -> list[list[list[int | None]]]:
    points = product([None, *range(POINTS)], repeat=2 * HEADS)
    return [[list(each[:HEADS]), list(each[HEADS:])] for each in points]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.1, 0.4, 0.8])
def test_no_choice_with_as_few_words_changes_the_output_less(seed: int, share: float) -> None:
    made = drawn(seed)
    fewest = float(torch.cat([layer.supports()[0] for layer in made[0]]).mean())
    support = fewest + share * (BEFORE - fewest)
    error, words = cost(made, allocate(*made, support))
    assert words <= support
    for each in every_choice():
        other, needed = cost(made, each)
        assert needed > words + 1e-9 or other >= error - 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_heads_whose_changes_interact_are_chosen_together(seed: int) -> None:
    """Coordinate descent: no change of one head with as few words is better."""
    made = drawn(seed, apart=False)
    found = allocate(*made, 5.0)
    error, words = cost(made, found)
    assert words <= 5.0
    for each in every_choice():
        changed = sum(
            a != b for one, two in zip(each, found, strict=True) for a, b in zip(one, two, strict=True)
        )
        other, needed = cost(made, each)
        assert changed > 1 or needed > words + 1e-9 or other >= error - 1e-6


def test_changes_that_cancel_cost_nothing() -> None:
    """Each of two heads alone would keep softmax; together, both are sparse and the output is as before."""
    queries = torch.ones(2, dtype=torch.float64)
    words = torch.tensor([[1.0, 1.0], [5.0, 5.0]], dtype=torch.float64)
    layer = LayerSums(words, words, queries, 9 * queries, queries)
    effects = torch.tensor([[[1.0, 1.0], [-1.0, -1.0]], [[0.5, -0.5], [0.5, -0.5]]])
    assert allocate([layer], [effects], 1.0) == [[0, 0]]
    assert allocate([layer], [effects], 6.0) == [[0, 0]]


def test_a_generous_support_keeps_softmax_and_a_small_one_raises() -> None:
    made = drawn(0)
    assert allocate(*made, BEFORE) == [[None] * HEADS] * 2
    with pytest.raises(ValueError, match=r"support=...\)` must be at least .*the fewest words.*Got 0.5"):
        allocate(*made, 0.5)


def output_of(model: Any, inputs: dict[str, torch.Tensor], attend: Any) -> torch.Tensor:
    transformers.AttentionInterface.register(CALIBRATING, attend)
    transformers.AttentionMaskInterface.register(CALIBRATING, mask)
    model.set_attn_implementation(CALIBRATING)
    return model_output(model(**inputs))


@pytest.mark.parametrize("architecture", ["bert", "llama", "t5"])
def test_an_effect_is_the_change_of_the_output_in_a_direction(architecture: str) -> None:
    """<J^T r, d> is the product of r with the change of the output: by central differences, for every layer."""
    model = MODELS[architecture]
    built, inputs = model.build("eager").double(), model.inputs()
    attend = Calibrate("softmax", CALIBRATING, named("sparsemax"), ({"gamma": 1.0},))
    attend.begin(inputs)
    y = output_of(built, inputs, attend)
    calls = list(attend.calls)
    found = directions(y, calls, seed=3)
    generator = torch.Generator().manual_seed(3)
    r = torch.stack([torch.randn(y.shape, generator=generator).double() for _ in range(PROBES)], -1)

    def slope(number: int, change: torch.Tensor) -> torch.Tensor:
        """The derivative of the output as the output of one call moves along a change."""

        def moved(step: float) -> torch.Tensor:
            numbers = iter(range(len(calls)))

            def call(module: torch.nn.Module, *args: Any, **options: Any) -> tuple[Any, Any]:
                out, weights = attend(module, *args, **options)
                moves = next(numbers) == number
                return out + step * change.transpose(1, 2) if moves else out, weights

            with torch.no_grad():
                return output_of(built, inputs, call)

        return (moved(1e-4) - moved(-1e-4)) / 2e-4  # RMS norms round to float32, ReLU has kinks

    for number, call in enumerate(calls):
        change = torch.randn(call.out.shape, generator=generator, dtype=torch.float64)
        expected = torch.einsum("bn,bnr->br", slope(number, change).flatten(1), r.flatten(1, -2))
        products = effect(change, found[number], len(y)).sum(0).reshape(len(y), PROBES)
        assert expected.abs().max() > 1e-3
        torch.testing.assert_close(
            products.double(), expected, rtol=1e-2, atol=1e-2 * float(expected.abs().max())
        )


def test_the_output_that_matters_changes_less_if_it_is_given() -> None:
    """The first word's state with it as the output, and with the default, all states."""
    model = MODELS["bert"]
    inputs = model.inputs()
    grid = {"gamma": tuple(0.5 * 1.3**i for i in range(14))}

    def first(outputs: Any, batch: Any) -> torch.Tensor:
        return model_output(outputs)[:, 0]

    errors = []
    for chosen in (first, None):
        built = model.build("sdpa")
        with torch.no_grad():
            wanted = first(built(**inputs), inputs)
            sparse.sparsify_attention(
                built, [inputs], mapping="sparsemax", support=7.0, strengths=grid, output=chosen
            )
            errors.append(float((first(built(**inputs), inputs) - wanted).square().sum()))
    assert errors[0] < errors[1]


def test_an_output_without_gradient_raises() -> None:
    model = MODELS["bert"]
    with pytest.raises(ValueError, match=r"output=...\)` must depend on the model's attention"):
        sparse.sparsify_attention(
            model.build("sdpa"),
            [model.inputs()],
            support=3.0,
            output=lambda outputs, batch: model_output(outputs).detach(),
        )


def test_an_output_needs_a_support() -> None:
    model = MODELS["bert"]
    with pytest.raises(ValueError, match=r"output=...\)` needs `support=`"):
        sparse.sparsify_attention(
            model.build("sdpa"), [model.inputs()], output=lambda outputs, batch: model_output(outputs)
        )
