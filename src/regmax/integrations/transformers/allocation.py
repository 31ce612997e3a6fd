"""Divide a number of words among all heads of a model so that their errors are the smallest.

One tolerance for all heads spends words where they change little: a head whose output is small, or whose error falls
slowly, gets as many as it asks for. Here a word has one price for all heads, and each head takes the point of the grid
with the smallest

    share * error + price * words,        share = |o_head|^2 / |o_layer|^2.

Among all choices with the same number of words, this one has the smallest sum of errors relative to the output of the
layer (the heads' sums are independent, so the minimum of a sum is the sum of the minima). A higher price gives fewer
words.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from regmax.integrations.transformers.calibration import LayerSums

_PRICES = (1e-12, 1e12)
_HALVINGS = 60  # of the prices' ratio: neighbouring prices then differ by less than a float32 does

Chosen = list[list[int | None]]  # by layer and head: the number of the point, None for softmax


def allocate(layers: Sequence[LayerSums], support: float) -> Chosen:
    """The points of all heads with the smallest errors whose mean number of words is at most `support`.

    Raises:
        ValueError: if no point of the grid has so few words.
    """
    curves = [_curves(layer) for layer in layers]
    low, high = _PRICES
    fewest = _mean_words(curves, high)
    if fewest > support:
        raise ValueError(
            f"`sparsify_attention(model, batches, support=...)` must be at least {fewest:.2f}, the fewest words that "
            f"the strengths give. Got {support}."
        )
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if _mean_words(curves, middle) <= support else (middle, high)
    return [_numbers(errors, words, high) for errors, words in curves]


def _curves(layer: LayerSums) -> tuple[Tensor, Tensor]:
    """Errors relative to the layer's output, and words, (points + 1, heads); the last point is softmax."""
    before = layer.words_before / layer.queries.clamp_min(1)
    errors = layer.error / layer.norm.sum().clamp_min(torch.finfo(torch.float64).tiny)
    softmax = torch.zeros_like(before)
    return torch.cat([errors, softmax[None]]), torch.cat([layer.supports(), before[None]])


def _best(errors: Tensor, words: Tensor, price: float) -> Tensor:
    return (errors + price * words).argmin(0)


def _mean_words(curves: Sequence[tuple[Tensor, Tensor]], price: float) -> float:
    taken = [words.gather(0, _best(errors, words, price)[None])[0] for errors, words in curves]
    return float(torch.cat(taken).mean())


def _numbers(errors: Tensor, words: Tensor, price: float) -> list[int | None]:
    softmax = len(errors) - 1
    return [None if i == softmax else i for i in _best(errors, words, price).tolist()]
