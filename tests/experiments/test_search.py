"""Beam search agrees with exhaustive search, and returns the attention of the result."""

from __future__ import annotations

import itertools

import pytest
import torch
from tiny import tiny

from regmax.experiments.config import Seq2SeqConfig
from regmax.experiments.data.vocabulary import END, PAD, START
from regmax.experiments.models.search import beam_search
from regmax.experiments.models.seq2seq import Batch, Seq2Seq

SIZE, LONGEST = 7, 3
SOURCE = torch.tensor([[4, 5, 6, 4], [5, 6, PAD, PAD]])
LENGTHS = torch.tensor([4, 2])


@pytest.fixture
def model() -> Seq2Seq:
    torch.manual_seed(3)
    config = tiny(mapping="sparsemax", init=1.0)
    assert isinstance(config, Seq2SeqConfig)
    return Seq2Seq(config, SIZE, SIZE).eval()


def log_p(model: Seq2Seq, row: int, words: tuple[int, ...]) -> float:
    """log p of a sequence, by teacher forcing."""
    source = SOURCE[row : row + 1, : int(LENGTHS[row])]
    batch = Batch(source, LENGTHS[row : row + 1], torch.tensor([[START, *words]]))
    with torch.no_grad():
        hidden, _ = model.teach(batch)
        table = model.output(hidden[0])
    return float(table[torch.arange(len(words)), torch.tensor(words)].sum())


def everything() -> list[tuple[int, ...]]:
    """All finished sequences, and all unfinished ones of maximal length."""
    inner = [word for word in range(SIZE) if word not in (PAD, START, END)]
    ended = [(*words, END) for n in range(LONGEST) for words in itertools.product(inner, repeat=n)]
    return [*ended, *itertools.product(inner, repeat=LONGEST)]


def test_a_wide_beam_is_an_exhaustive_search(model: Seq2Seq) -> None:
    found = beam_search(model, SOURCE, LENGTHS, beam=SIZE**LONGEST, longest=LONGEST)
    for row, hypothesis in enumerate(found):
        best = max(everything(), key=lambda words, row=row: log_p(model, row, words))
        assert tuple(hypothesis.words) == best
        assert hypothesis.score == pytest.approx(log_p(model, row, best), abs=1e-5)


def test_a_beam_of_one_is_greedy(model: Seq2Seq) -> None:
    found = beam_search(model, SOURCE, LENGTHS, beam=1, longest=LONGEST)
    for row, hypothesis in enumerate(found):
        words: tuple[int, ...] = ()
        while len(words) < LONGEST and (not words or words[-1] != END):
            allowed = [word for word in range(SIZE) if word not in (PAD, START)]
            words = max(((*words, word) for word in allowed), key=lambda w, row=row: log_p(model, row, w))
        assert tuple(hypothesis.words) == words


def test_the_attention_is_that_of_the_words(model: Seq2Seq) -> None:
    for row, hypothesis in enumerate(beam_search(model, SOURCE, LENGTHS, beam=4, longest=LONGEST)):
        d = int(LENGTHS[row])
        batch = Batch(
            SOURCE[row : row + 1, :d], LENGTHS[row : row + 1], torch.tensor([[START, *hypothesis.words]])
        )
        with torch.no_grad():
            _, attentions = model.teach(batch)
        expected = torch.cat([attention.y for attention in attentions])
        assert hypothesis.y.shape == (len(hypothesis.words), d)
        torch.testing.assert_close(hypothesis.y, expected, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(hypothesis.y.sum(1), torch.ones(len(hypothesis.words)))


def test_a_length_penalty_ranks_by_the_mean(model: Seq2Seq) -> None:
    found = beam_search(model, SOURCE, LENGTHS, beam=5, longest=LONGEST, penalty=1.0)
    for row, hypothesis in enumerate(found):
        words = tuple(hypothesis.words)
        assert hypothesis.score == pytest.approx(log_p(model, row, words) / len(words), abs=1e-5)
