"""An LSTM encoder and decoder with global attention and input feeding (Luong et al., 2015)."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from regmax.experiments.config import Seq2SeqConfig
from regmax.experiments.data.vocabulary import PAD
from regmax.experiments.models.attention import mapping, mask_of
from regmax.experiments.models.output import Output
from regmax.nn import GlobalAttention, PreparedMemory


class Batch(NamedTuple):
    """Padded sequences of word numbers; a target begins with START and ends with END."""

    source: Tensor  # (batch, d)
    lengths: Tensor  # (batch,): words of each source
    target: Tensor  # (batch, longest target)


class State(NamedTuple):
    """The decoder between two words."""

    cells: tuple[tuple[Tensor, Tensor], ...]  # the hidden state and the cell of each layer, (batch, hidden)
    feed: Tensor  # (batch, hidden): the attentional state, an input of the next step

    def rows(self, index: Tensor) -> "State":
        """The state of selected sentences of the batch; sentences may repeat."""
        return State(tuple((hidden[index], cell[index]) for hidden, cell in self.cells), self.feed[index])


class Attention(NamedTuple):
    """One step's attention: scores x and weights y, both (batch, d)."""

    x: Tensor
    y: Tensor


class Seq2Seq(nn.Module):
    """p(target | source). Called on a batch, it returns the sum of -log p over all target words."""

    def __init__(self, config: Seq2SeqConfig, source_size: int, target_size: int) -> None:
        super().__init__()
        words, hidden = config.words, config.hidden
        self.source_words = nn.Embedding(source_size, words, padding_idx=PAD)
        self.target_words = (
            self.source_words if config.shared else nn.Embedding(target_size, words, padding_idx=PAD)
        )
        directions = 2 if config.bidirectional else 1
        self.encoder = nn.LSTM(
            words,
            hidden // directions,
            config.layers,
            batch_first=True,
            bidirectional=config.bidirectional,
            dropout=config.dropout if config.layers > 1 else 0.0,
        )
        sizes = [words + hidden] + [hidden] * (config.layers - 1)
        self.cells = nn.ModuleList(nn.LSTMCell(size, hidden) for size in sizes)
        scale = hidden**-0.5 if config.scaled else 1.0
        self.attend = GlobalAttention(hidden, mapping=mapping(config), scale=scale)
        self.values = nn.Linear(hidden, hidden, bias=False) if config.word_values else None
        self.dropout = nn.Dropout(config.dropout)
        self.output = Output(
            hidden, target_size, config.frequent, self.target_words if config.shared else None
        )
        self.scale = config.words**0.5 if config.shared else 1.0
        self._initialize(config.init, config.shared)

    def _initialize(self, width: float, shared: bool) -> None:
        if shared:
            # Small, as output weights should be; `scale` makes them as large as word vectors should be. With small
            # input vectors, attention would learn from the decoder's states before it learns from words.
            nn.init.normal_(self.source_words.weight, std=self.scale**-1)
        for parameter in self.parameters() if width else ():
            nn.init.uniform_(parameter, -width, width)
        for embedding in (self.source_words, self.target_words):
            nn.init.zeros_(embedding.weight[PAD].detach())
        if self.values is not None:
            nn.init.eye_(self.values.weight)  # initially the values are state + word vector

    def forward(self, batch: Batch) -> Tensor:
        hidden, _ = self.teach(batch)
        words = batch.target[:, 1:]
        real = words != PAD
        return self.output.loss(hidden[real], words[real])

    def teach(self, batch: Batch) -> tuple[Tensor, list[Attention]]:
        """The attentional states (batch, steps, hidden) and the attention, with the true words as input."""
        memory, state = self.encode(batch.source, batch.lengths)
        vectors = self.dropout(self.target_words(batch.target[:, :-1]) * self.scale)
        states, attentions = [], []
        for vector in vectors.unbind(1):
            state, attention = self._step(vector, state, memory)
            states.append(state.feed)
            attentions.append(attention)
        return torch.stack(states, 1), attentions

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[PreparedMemory, State]:
        """Encode the source."""
        vectors = self.dropout(self.source_words(source) * self.scale)
        packed = nn.utils.rnn.pack_padded_sequence(
            vectors, lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        packed, (hidden, cell) = self.encoder(packed)
        states, _ = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
        values = None if self.values is None else self.values(states + vectors)
        cells = tuple(zip(self._joined(hidden), self._joined(cell), strict=True))
        state = State(cells, torch.zeros_like(cells[0][0]))
        return self.attend.prepare(states, mask_of(lengths, source.shape[1]), values=values), state

    def _joined(self, last: Tensor) -> Tensor:
        """Both directions of each layer side by side: (layers * directions, batch, n) -> (layers, batch, hidden)."""
        directions = last.view(len(self.cells), -1, *last.shape[1:])
        return torch.cat(directions.unbind(1), -1)

    def step(self, words: Tensor, state: State, memory: PreparedMemory) -> tuple[Tensor, State, Attention]:
        """log p of every next word after `words` (batch,), the new state, and the attention."""
        state, attention = self._step(self.dropout(self.target_words(words) * self.scale), state, memory)
        return self.output(state.feed), state, attention

    def _step(self, vector: Tensor, state: State, memory: PreparedMemory) -> tuple[State, Attention]:
        below = torch.cat([vector, state.feed], -1)
        cells = []
        for i, (cell, old) in enumerate(zip(self.cells, state.cells, strict=True)):
            cells.append(cell(self.dropout(below) if i else below, old))
            below = cells[-1][0]
        feed, y, x = self.attend.with_scores(below, memory)
        return State(tuple(cells), self.dropout(feed)), Attention(x, y)
