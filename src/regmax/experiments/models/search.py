"""Beam search that keeps the attention of the returned hypotheses."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regmax.experiments.data.vocabulary import END, PAD, START
from regmax.experiments.models.seq2seq import Attention, Seq2Seq


@dataclass(frozen=True)
class Hypothesis:
    """A decoded sentence, including END unless it reached the length limit."""

    words: list[int]
    score: float
    x: Tensor  # (len(words), d): scores of each step
    y: Tensor  # (len(words), d): weights


@dataclass(frozen=True)
class _Step:
    """The choices of one search step, for batch * beam hypotheses."""

    words: Tensor
    parents: Tensor  # the hypothesis of the previous step that each continues
    attention: Attention


@torch.no_grad()
def beam_search(
    model: Seq2Seq, source: Tensor, lengths: Tensor, *, beam: int, longest: int, penalty: float = 0.0
) -> list[Hypothesis]:
    """The best hypothesis of each source; `beam` hypotheses are kept at each step.

    Hypotheses are ranked by log p / length ** penalty. A finished hypothesis stays in the beam with its score; the
    search for a sentence ends when its best hypothesis has finished. Without penalty it then remains the best, because
    log p can only decrease.
    """
    memory, state = model.encode(source, lengths)
    batch = source.shape[0]
    spread = torch.arange(batch, device=source.device).repeat_interleave(beam)
    memory, state = memory.rows(spread), state.rows(spread)
    words = torch.full_like(spread, START)
    # Initially all hypotheses of a sentence are equal: only one of them may continue.
    total = torch.full((batch, beam), -torch.inf, device=source.device)
    total[:, 0] = 0.0
    length = torch.zeros_like(total)
    ended = torch.zeros_like(total, dtype=torch.bool)
    steps: list[_Step] = []
    for _ in range(longest):
        log_p, state, attention = model.step(words, state, memory)
        log_p[:, [PAD, START]] = -torch.inf
        # Keep only the best words of each hypothesis first, so that later tensors are small: (batch, beam, beam).
        log_p, choices = (part.view(batch, beam, -1) for part in log_p.topk(min(beam, log_p.shape[1])))
        log_p[ended], choices[ended] = -torch.inf, END
        log_p[..., 0].masked_fill_(ended, 0.0)
        totals = total.unsqueeze(2) + log_p
        lengths_now = length + (~ended).float()
        ranks = totals / lengths_now.unsqueeze(2) ** penalty
        chosen = ranks.flatten(1).topk(beam).indices  # (batch, beam), the best first
        parent, word = chosen // log_p.shape[2], choices.flatten(1).gather(1, chosen)
        total, length = totals.flatten(1).gather(1, chosen), lengths_now.gather(1, parent)
        ended = word == END
        words = word.flatten()
        parents = (parent + beam * torch.arange(batch, device=source.device).unsqueeze(1)).flatten()
        steps.append(_Step(words, parents, attention))
        state = state.rows(parents)
        if bool(ended[:, 0].all()):
            break
    scores = (total / length**penalty)[:, 0].tolist()
    return [_trace(steps, i * beam, scores[i], int(n)) for i, n in enumerate(lengths.tolist())]


def _trace(steps: list[_Step], hypothesis: int, score: float, d: int) -> Hypothesis:
    """Follow the parents back from the last step, and truncate after the first END."""
    words, attentions = [], []
    for step in reversed(steps):
        words.append(int(step.words[hypothesis]))
        hypothesis = int(step.parents[hypothesis])
        attentions.append((step.attention.x[hypothesis, :d], step.attention.y[hypothesis, :d]))
    words.reverse()
    attentions.reverse()
    count = words.index(END) + 1 if END in words else len(words)
    x, y = (torch.stack(rows).cpu() for rows in zip(*attentions[:count], strict=True))
    return Hypothesis(words[:count], score, x, y)
