"""The distribution over the next word, in one level or two.

In two levels, p(w) = p1(w) for the frequent words, and p(w) = p1(rest) p2(w) for the others. p2, over most of the
vocabulary, is computed only at positions whose word is rare, which saves training time.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Output(nn.Module):
    """log p(word | hidden).

    Args:
        hidden: the dimension of the states.
        size: the number of words, the most frequent first.
        frequent: how many of them are in the first level; 0: all.
        embedding: the word vectors to share the weights with.
    """

    def __init__(self, hidden: int, size: int, frequent: int, embedding: nn.Embedding | None = None) -> None:
        super().__init__()
        self.frequent = frequent if 0 < frequent < size else size
        weight = nn.Parameter(torch.empty(size, hidden).uniform_(-(hidden**-0.5), hidden**-0.5))
        self.weight = weight if embedding is None else embedding.weight
        self.bias = nn.Parameter(torch.zeros(size))
        if self.two_levels:
            self.rest = nn.Linear(hidden, 1)

    @property
    def two_levels(self) -> bool:
        """Whether some words are in a second level."""
        return self.frequent < self.weight.shape[0]

    def loss(self, hidden: Tensor, words: Tensor) -> Tensor:
        """The sum of -log p(word) over the rows of `hidden`."""
        total = functional.cross_entropy(self._first(hidden), words.clamp(max=self.frequent), reduction="sum")
        rare = words >= self.frequent
        if self.two_levels and bool(rare.any()):
            second = self._second(hidden[rare])
            total = total + functional.cross_entropy(second, words[rare] - self.frequent, reduction="sum")
        return total

    def forward(self, hidden: Tensor) -> Tensor:
        """log p of every word, one row per row of `hidden`."""
        first = self._first(hidden).log_softmax(-1)
        if not self.two_levels:
            return first
        second = self._second(hidden).log_softmax(-1) + first[:, -1:]
        return torch.cat([first[:, :-1], second], -1)

    def _first(self, hidden: Tensor) -> Tensor:
        logits = functional.linear(hidden, self.weight[: self.frequent], self.bias[: self.frequent])
        return torch.cat([logits, self.rest(hidden)], -1) if self.two_levels else logits

    def _second(self, hidden: Tensor) -> Tensor:
        return functional.linear(hidden, self.weight[self.frequent :], self.bias[self.frequent :])
