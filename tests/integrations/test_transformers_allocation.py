"""Words divided among heads: the smallest errors for their number, compared with every choice one by one."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from regmax.integrations.transformers.allocation import allocate
from regmax.integrations.transformers.calibration import LayerSums, choose

POINTS, HEADS, BEFORE = 3, 2, 9.0


def drawn(seed: int) -> list[LayerSums]:
    """Two layers whose errors fall as words are added, with heads of different size."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(2):
        words, falls = torch.rand(2, POINTS, HEADS, generator=generator, dtype=torch.float64).sort(1)[0]
        words, falls = 1 + 7 * words, falls.flip(0)
        norm = torch.rand(HEADS, generator=generator, dtype=torch.float64).add(0.1)
        queries = torch.full((HEADS,), 4.0, dtype=torch.float64)
        made.append(LayerSums(falls * norm, words * 4, norm, queries * BEFORE, queries))
    return made


def cost(layers: list[LayerSums], chosen: list[list[int | None]]) -> tuple[float, float]:
    """The sum of the layers' relative errors, and the mean number of words."""
    error, words = 0.0, []
    for layer, heads in zip(layers, chosen, strict=True):
        for head, i in enumerate(heads):
            words.append(BEFORE if i is None else float(layer.supports()[i, head]))
            error += 0.0 if i is None else float(layer.error[i, head] / layer.norm.sum())
    return error, sum(words) / len(words)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.1, 0.4, 0.8])
def test_no_choice_with_as_few_words_has_smaller_errors(seed: int, share: float) -> None:
    layers = drawn(seed)
    fewest = float(torch.cat([layer.supports()[0] for layer in layers]).mean())
    support = fewest + share * (BEFORE - fewest)
    found = allocate(layers, support)
    error, words = cost(layers, found)
    assert words <= support
    for each in product([None, *range(POINTS)], repeat=2 * HEADS):
        other, needed = cost(layers, [list(each[:HEADS]), list(each[HEADS:])])
        assert needed > words + 1e-12 or other >= error - 1e-12


@pytest.mark.parametrize("tolerance", [0.2, 0.5, 0.8])
def test_errors_are_no_larger_than_with_one_tolerance(tolerance: float) -> None:
    for seed in range(5):
        layers = drawn(seed)
        error, words = cost(layers, [choose(layer, tolerance) for layer in layers])
        best, fewer = cost(layers, allocate(layers, words))
        # Prices reach the corners of the convex hull: a choice between two corners may need a word more.
        assert best <= error + 1e-12 or fewer < words


def test_a_generous_support_keeps_softmax_and_a_small_one_raises() -> None:
    layers = drawn(0)
    assert allocate(layers, BEFORE) == [[None] * HEADS] * 2
    with pytest.raises(ValueError, match=r"support=...\)` must be at least .*the fewest words.*Got 0.5"):
        allocate(layers, 0.5)
