"""Scores as functions of sums over sentences, which a bootstrap resamples and which are small enough to be kept."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regmax.experiments.metrics.rouge import rouge

Sums = NDArray[np.float64]
_DIGITS = 4  # of a sentence's ROUGE


@dataclass(frozen=True, eq=False)
class Sentences:
    """For each score the statistics of every sentence, (sentences, k), and a checksum of the references.

    k is 10 for BLEU: the lengths of output and reference, then the n-grams that occur in both and those of the output,
    n = 1 to 4. It is 1 for scores that are means over sentences.
    """

    statistics: Mapping[str, Sums]
    references: int

    def to_json(self) -> dict[str, Any]:
        """Numbers and lists of numbers, column by column."""
        columns = {name: [_plain(column) for column in rows.T] for name, rows in self.statistics.items()}
        return {"references": self.references, "statistics": columns}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Sentences":
        """See `to_json`."""
        statistics = {name: np.array(columns, float).T for name, columns in record["statistics"].items()}
        return cls(statistics, int(record["references"]))


def sentences(task: str, texts: Sequence[str], references: Sequence[tuple[str, ...]]) -> Sentences:
    """The statistics of what a model wrote.

    Example:
        >>> found = sentences("entailment", ["neutral", "neutral"], [("neutral",), ("contradiction",)])
        >>> found.statistics["accuracy"].tolist()
        [[1.0], [0.0]]
    """
    if task == "translation":
        statistics = {"BLEU": _bleu(texts, references)}
    elif task == "entailment":
        right = [text in choices for text, choices in zip(texts, references, strict=True)]
        statistics = {"accuracy": np.array(right, float)[:, None]}
    else:
        statistics = _rouge(texts, references)
    return Sentences(statistics, zlib.crc32(repr(list(references)).encode()))


def score(name: str, sums: Sums, count: int) -> float:
    """The score of `count` sentences, whose statistics add up to `sums`.

    Example:
        >>> score("accuracy", np.array([3.0]), 4)
        75.0
    """
    if name != "BLEU":
        return float(100 * sums[0] / count)
    from sacrebleu.metrics.bleu import BLEU

    length, reference, *right, one, two, three, four = map(int, sums)
    return float(BLEU.compute_bleu(right, [one, two, three, four], length, reference).score)


def _bleu(texts: Sequence[str], references: Sequence[tuple[str, ...]]) -> Sums:
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(tokenize="none", force=True)
    found = [
        metric.corpus_score([text], [[choice] for choice in choices])
        for text, choices in zip(texts, references, strict=True)
    ]
    return np.array([[each.sys_len, each.ref_len, *each.counts, *each.totals] for each in found], float)


def _rouge(texts: Sequence[str], references: Sequence[tuple[str, ...]]) -> dict[str, Sums]:
    found = [
        rouge([text.split()], [[choice.split() for choice in choices]])
        for text, choices in zip(texts, references, strict=True)
    ]
    return {
        name: np.array([[round(each[name].f1 / 100, _DIGITS)] for each in found])
        for name in ("ROUGE-1", "ROUGE-2", "ROUGE-L")
    }


def _plain(column: Sums) -> list[float]:
    return [int(value) if value == int(value) else float(value) for value in column]
