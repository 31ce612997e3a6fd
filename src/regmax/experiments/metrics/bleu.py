"""Tokenized BLEU, by sacrebleu."""

from collections.abc import Sequence

from sacrebleu.metrics.bleu import BLEU

Tokens = Sequence[str]


def bleu(hypotheses: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> tuple[float, str]:
    """The corpus BLEU of tokenized sentences without further tokenization, and sacrebleu's signature.

    Args:
        hypotheses: one sentence each.
        references: the references of each hypothesis, the same number for all.

    Example:
        >>> score, signature = bleu([["a", "b", "c", "d"]], [[["a", "b", "c", "d"]]])
        >>> round(score), "tok:none" in signature
        (100, True)
    """
    metric = BLEU(tokenize="none", force=True)  # force: no warning that the text is tokenized
    columns = [[" ".join(tokens) for tokens in column] for column in zip(*references, strict=True)]
    score = metric.corpus_score([" ".join(tokens) for tokens in hypotheses], columns)
    return float(score.score), str(metric.get_signature())
