"""ROUGE-W (Lin, 2004): the longest common subsequence, in which consecutive matches count more.

k consecutive matches count f(k) = k ** weight instead of k. With m words in the reference, n in the
hypothesis and WLCS the weighted length, recall is f^-1(WLCS / f(m)) and precision f^-1(WLCS / f(n)).
"""

from collections.abc import Sequence
from typing import NamedTuple


class Score(NamedTuple):
    """Precision, recall and F1, between 0 and 1."""

    precision: float
    recall: float
    f1: float


def rouge_w(hypothesis: Sequence[str], reference: Sequence[str], *, weight: float = 1.2) -> Score:
    """ROUGE-W of one hypothesis against one reference.

    Example: Lin's, with weight 2: four consecutive matches of seven.
        >>> round(rouge_w("ABCDHIK", "ABCDEFG", weight=2).f1, 3)
        0.571
    """
    if not hypothesis or not reference:
        return Score(0.0, 0.0, 0.0)
    common = _weighted_length(hypothesis, reference, weight)
    # f^-1(common / f(n)) = common ** (1 / weight) / n
    length = common ** (1 / weight)
    return score(length / len(hypothesis), length / len(reference))


def score(precision: float, recall: float) -> Score:
    """Precision and recall with their harmonic mean."""
    total = precision + recall
    return Score(precision, recall, 2 * precision * recall / total if total else 0.0)


def _weighted_length(a: Sequence[str], b: Sequence[str], weight: float) -> float:
    """Lin's dynamic program: best[j] is the weighted length for a[:i] and b[:j], run[j] the matches that end there."""
    best, run = [0.0] * (len(b) + 1), [0] * (len(b) + 1)
    for word in a:
        above, runs_above = best, run
        best, run = [0.0] * len(above), [0] * len(above)
        for j, other in enumerate(b, 1):
            if word == other:
                k = runs_above[j - 1]
                best[j] = above[j - 1] + (k + 1) ** weight - k**weight
                run[j] = k + 1
            else:
                best[j] = max(above[j], best[j - 1])
    return best[-1]
