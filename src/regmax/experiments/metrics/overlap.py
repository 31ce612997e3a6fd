"""Whether references belong to the sentences that were translated or summarized."""

from collections import Counter
from collections.abc import Sequence

Tokens = Sequence[str]
_FEWEST = 20  # sentences: of fewer the shares say little
_LEAST = 1.25  # times as many words as with the reference of another sentence


def complaint(hypotheses: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> str:
    """A sentence if the outputs are no closer to their own references than to those of other sentences; else nothing.

    Wrong or shifted files pass every check of their form, and give a score near zero.

    Example:
        >>> texts = [[f"word{i}"] for i in range(30)]
        >>> complaint(texts, [[text] for text in texts])
        ''
        >>> complaint(texts, [[text] for text in texts[1:] + texts[:1]]).partition(":")[0]
        'the outputs share 0 % of their words with their references and 0 % with those of other sentences'
    """
    n = len(hypotheses)
    if n < _FEWEST:
        return ""
    own = _shared(hypotheses, references)
    # A permutation without fixed points that moves far: neighbouring sentences may be of one document.
    other = _shared(hypotheses, [references[(i + n // 2) % n] for i in range(n)])
    if own > 0 and own >= _LEAST * other:
        return ""
    return (
        f"the outputs share {own:.0%} of their words with their references and {other:.0%} with those of other "
        "sentences: do these references belong to these sources?"
    ).replace("%", " %")


def _shared(hypotheses: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> float:
    """The share of the outputs' words that occur in one of their references."""
    found, total = 0, 0
    for tokens, choices in zip(hypotheses, references, strict=True):
        counts = Counter(tokens)
        found += max((counts & Counter(choice)).total() for choice in choices)
        total += len(tokens)
    return found / total if total else 0.0
