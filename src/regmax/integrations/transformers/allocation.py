"""Divide a number of words among all heads of a model so that its output changes least.

One tolerance for all heads spends words where they change little. Here a word has one price for all heads, and the
points of the grid are chosen to have the smallest

    |sum_h J_h d_h|^2 + price * sum_h words_h,

the first term from the products of `effects.py`. The changes of several heads may cancel or add up, so heads are chosen
together: first each as if it were alone, then one after the other, given all others, until none changes. A higher price
gives fewer words.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regmax.integrations.transformers.calibration import LayerSums

_PRICES = (1e-12, 1e12)  # of a word, for effects whose mean square is one
_HALVINGS = 60  # of the prices' ratio: neighbouring prices then differ by less than a float32 does
_NEAR, _NEAR_HALVINGS = 30.0, 12  # prices for heads together: this far around the price for heads alone
_SWEEPS = 8  # over all heads; most choices are final after four

Chosen = list[list[int | None]]  # by layer and head: the number of the point, None for softmax


@dataclass(frozen=True)
class _Heads:
    """All heads of a model: words (heads, points + 1), effects (heads, points + 1, products); the last is softmax."""

    words: Tensor
    effects: Tensor

    def alone(self, price: float) -> Tensor:
        """The best point of each head, as if no other changed."""
        return (self.effects.square().mean(-1) + price * self.words).argmin(1)

    def together(self, price: float) -> Tensor:
        """The points after coordinate descent from `alone`."""
        chosen = self.alone(price)
        total = self.taken(self.effects, chosen).sum(0)
        own = self.effects.square().mean(-1) + price * self.words
        for _ in range(_SWEEPS):
            before = chosen.clone()
            for head, effects in enumerate(self.effects):
                rest = total - effects[chosen[head]]
                chosen[head] = (own[head] + 2 * (effects @ rest) / rest.numel()).argmin()
                total = rest + effects[chosen[head]]
            if torch.equal(before, chosen):
                break
        return chosen

    def taken(self, values: Tensor, chosen: Tensor) -> Tensor:
        """The values at the chosen points."""
        return values[torch.arange(len(chosen)), chosen]

    def mean_words(self, chosen: Tensor) -> float:
        """The mean number of words of the chosen points."""
        return float(self.taken(self.words, chosen).mean())

    def error(self, chosen: Tensor) -> float:
        """The mean square of the heads' joint effect."""
        return float(self.taken(self.effects, chosen).sum(0).square().mean())


def allocate(layers: Sequence[LayerSums], effects: Sequence[Tensor], support: float) -> Chosen:
    """The points of all heads with a small change of the output whose mean number of words is at most `support`.

    Args:
        layers: the words of the points.
        effects: their products with the directions, for each layer (points, heads, products).
        support: the mean number of words.

    Raises:
        ValueError: if no point of the grid has so few words.
    """
    heads = _joined(layers, effects)
    low, high = _PRICES
    fewest = heads.mean_words(heads.alone(high))
    if fewest > support:
        raise ValueError(
            f"`sparsify_attention(model, batches, support=...)` must be at least {fewest:.2f}, the fewest words that "
            f"the strengths give. Got {support}."
        )
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if heads.mean_words(heads.alone(middle)) <= support else (middle, high)
    best = min([heads.alone(high), *_together(heads, high, support)], key=heads.error)
    return _by_layer(best, [layer.norm.numel() for layer in layers], softmax=heads.words.shape[1] - 1)


def _together(heads: _Heads, price: float, support: float) -> Iterator[Tensor]:
    """Choices of heads together within the support, at prices that approach it."""
    low, high = price / _NEAR, price * _NEAR
    for _ in range(_NEAR_HALVINGS):
        middle = (low * high) ** 0.5
        chosen = heads.together(middle)
        if heads.mean_words(chosen) <= support:
            high = middle
            yield chosen
        else:
            low = middle


def _joined(layers: Sequence[LayerSums], effects: Sequence[Tensor]) -> _Heads:
    words, products = [], []
    for layer, effect in zip(layers, effects, strict=True):
        before = layer.words_before / layer.queries.clamp_min(1)
        words.append(torch.cat([layer.supports(), before[None]]).T)
        softmax = effect.new_zeros(1, *effect.shape[1:])
        products.append(torch.cat([effect, softmax]).transpose(0, 1))
    joined = torch.cat(products).double()
    return _Heads(torch.cat(words), joined / joined.square().mean().sqrt().clamp_min(1e-300))


def _by_layer(chosen: Tensor, sizes: Sequence[int], softmax: int) -> Chosen:
    return [[None if i == softmax else i for i in part.tolist()] for part in chosen.split(list(sizes))]
