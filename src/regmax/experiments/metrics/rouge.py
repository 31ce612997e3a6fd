"""ROUGE-1, 2, L by rouge-score, and ROUGE-W-1.2, of tokenized text."""

from collections.abc import Sequence
from functools import cache
from statistics import fmean
from typing import Any

from regmax.experiments.metrics.rouge_w import Score, rouge_w

Tokens = Sequence[str]
_LIBRARY = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}


class _Whitespace:
    """Splits at blanks: rouge-score's own tokenizer drops `##` and splits `<unk>`, which changes ROUGE-1 by points."""

    def tokenize(self, text: str) -> list[str]:
        return text.split()


@cache
def _scorer() -> Any:
    """Imported on first use: with nltk it takes as long as importing torch, and two of three tasks do not need it."""
    from rouge_score.rouge_scorer import RougeScorer  # type: ignore[import-untyped]

    return RougeScorer(list(_LIBRARY), use_stemmer=False, tokenizer=_Whitespace())


def rouge(
    hypotheses: Sequence[Tokens], references: Sequence[Sequence[Tokens]], *, best: bool = False
) -> dict[str, Score]:
    """Mean ROUGE in percent over all hypotheses.

    Args:
        hypotheses: one sentence each.
        references: for each hypothesis its references.
        best: with several references, use the one with the highest F1; otherwise their mean, ROUGE-1.5.5's `-f A`.

    Example:
        >>> scores = rouge([["a", "b"]], [[["a", "b"], ["a", "c"]]])
        >>> scores["ROUGE-1"]
        Score(precision=75.0, recall=75.0, f1=75.0)
    """
    rows = [_sentence(h, r, best) for h, r in zip(hypotheses, references, strict=True)]
    return {name: _mean([row[name] for row in rows], 100.0) for name in rows[0]}


def truncate(tokens: Tokens, size: int) -> tuple[str, ...]:
    """The tokens in the first `size` bytes of the sentence; the last word may be cut, as in ROUGE's `-b`.

    Example:
        >>> truncate(["short", "words"], 8)
        ('short', 'wo')
    """
    return tuple(" ".join(tokens).encode()[:size].decode(errors="ignore").split())


def _sentence(hypothesis: Tokens, references: Sequence[Tokens], best: bool) -> dict[str, Score]:
    scores = [_one(hypothesis, reference) for reference in references]
    if best:
        return {name: max((s[name] for s in scores), key=lambda score: score.f1) for name in scores[0]}
    return {name: _mean([s[name] for s in scores], 1.0) for name in scores[0]}


def _one(hypothesis: Tokens, reference: Tokens) -> dict[str, Score]:
    found = _scorer().score(" ".join(reference), " ".join(hypothesis))
    scores = {
        name: Score(found[key].precision, found[key].recall, found[key].fmeasure)
        for key, name in _LIBRARY.items()
    }
    return {**scores, "ROUGE-W": rouge_w(hypothesis, reference)}


def _mean(scores: Sequence[Score], factor: float) -> Score:
    return Score(*(factor * fmean(column) for column in zip(*scores, strict=True)))
