"""The entailment classifier (Rocktäschel et al., 2016, with GRUs as in Martins and Astudillo, 2016)."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from regmax.experiments.config import EntailmentConfig
from regmax.experiments.data.snli import LABELS
from regmax.experiments.data.vocabulary import PAD
from regmax.experiments.models.attention import mapping, mask_of
from regmax.nn import GlobalAttention


class Batch(NamedTuple):
    """Padded sequences of word numbers, and the labels' numbers."""

    premise: Tensor  # (batch, d)
    premise_lengths: Tensor
    hypothesis: Tensor
    hypothesis_lengths: Tensor
    labels: Tensor  # (batch,)


class Reading(NamedTuple):
    """The classifier's outputs for a batch."""

    logits: Tensor  # (batch, labels)
    x: Tensor  # (batch, d): attention scores
    y: Tensor  # (batch, d): attention weights


class Classifier(nn.Module):
    """p(label | premise, hypothesis). Called on a batch, it returns the weighted sum of -log p.

    The GRUs have separate parameters; the hypothesis GRU starts from the last state of the premise GRU. The last state
    of the hypothesis attends to all states of the premise.

    Args:
        config: the sizes and the mapping.
        size: the number of words.
        vectors: fixed word vectors (size, n); None: learned ones.
        weights: the weight of each label.
    """

    weights: Tensor

    def __init__(self, config: EntailmentConfig, size: int, vectors: Tensor | None, weights: Tensor) -> None:
        super().__init__()
        n = config.words if vectors is None else vectors.shape[1]
        self.words = nn.Embedding(size, n, padding_idx=PAD)
        if vectors is not None:
            self.words.weight = nn.Parameter(vectors, requires_grad=False)
        hidden = config.hidden
        self.project = nn.Linear(n, hidden)
        self.premise = nn.GRU(hidden, hidden, batch_first=True)
        self.hypothesis = nn.GRU(hidden, hidden, batch_first=True)
        self.attend = GlobalAttention(hidden, score="concat", mapping=mapping(config), bias=False)
        self.label = nn.Linear(hidden, len(LABELS))
        self.dropout = nn.Dropout(config.dropout)
        self.register_buffer("weights", weights)

    def forward(self, batch: Batch) -> Tensor:
        logits = self.read(batch).logits
        return functional.cross_entropy(logits, batch.labels, self.weights, reduction="sum")

    def read(self, batch: Batch) -> Reading:
        """The labels' logits, and the attention."""
        states, last = self._run(self.premise, batch.premise, batch.premise_lengths, None)
        _, last = self._run(self.hypothesis, batch.hypothesis, batch.hypothesis_lengths, last)
        mask = mask_of(batch.premise_lengths, batch.premise.shape[1])
        state, y, x = self.attend.with_scores(last[0], states, mask)
        return Reading(self.label(self.dropout(state)), x, y)

    def _run(
        self, gru: nn.GRU, words: Tensor, lengths: Tensor, first: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        vectors = self.dropout(torch.tanh(self.project(self.words(words))))
        packed = nn.utils.rnn.pack_padded_sequence(
            vectors, lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        packed, last = gru(packed, first)
        states, _ = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
        return states, last
