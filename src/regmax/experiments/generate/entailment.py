"""Premises and hypotheses by a small grammar.

A hypothesis refers to one phrase of the premise: it paraphrases it (entailment), contradicts it (contradiction), or
says something that the premise does not mention (neutral). The phrase is the evidence; a neutral pair has none.
"""

import random

from regmax.experiments.data.snli import LABELS, Entailment

# Each entry: a phrase, an entailed phrase, a contradicting phrase.
_WHO = (
    ("an old man", "a person", "a dog"), ("two young women", "some people", "an empty room"),
    ("a little girl", "a child", "a group of men"), ("a group of men", "some people", "a little girl"),
    ("a brown dog", "an animal", "a person"), ("a street musician", "a person", "some cats"),
)  # fmt: skip
_DOES = (
    ("is playing the guitar", "makes music", "is asleep"), ("is riding a bike", "is moving", "sits still"),
    ("is fast asleep", "rests", "dances"), ("is eating ice cream", "eats", "drinks"),
    ("is jumping up and down", "jumps", "lies down"), ("is reading a newspaper", "reads", "swims"),
)  # fmt: skip
_WHERE = (
    ("on a busy street", "is outdoors", "is at home"), ("in the kitchen", "is indoors", "is on a beach"),
    ("at the beach", "is near the water", "is in the mountains"), ("in a crowded train", "travels", "is at home"),
)  # fmt: skip
_UNKNOWN = ("is happy", "is waiting for a friend", "is on vacation", "has a sister", "likes music")
_EXTRA = ("in a red shirt", "with a hat", "with long hair")
_GROUPS = (_WHO, _DOES, _WHERE)


def inference(draw: random.Random) -> Entailment:
    """A premise, a hypothesis, their label and the evidence.

    Example:
        >>> pair = inference(random.Random(1))
        >>> LABELS[pair.label] in LABELS and len(pair.premise) > 4
        True
    """
    phrases = [draw.choice(group) for group in _GROUPS]
    extra = [draw.choice(_EXTRA)] if draw.random() < 0.5 else []
    label = draw.randrange(len(LABELS))
    about = draw.randrange(len(_GROUPS))
    if LABELS[label] == "neutral":
        return _pair(phrases, extra, "someone " + draw.choice(_UNKNOWN), label, None)
    words = phrases[about][1 if LABELS[label] == "entailment" else 2]
    return _pair(phrases, extra, f"there is {words}" if about == 0 else f"someone {words}", label, about)


def _pair(
    phrases: list[tuple[str, str, str]], extra: list[str], hypothesis: str, label: int, about: int | None
) -> Entailment:
    premise: list[str] = []
    evidence: frozenset[int] | None = None
    texts = [phrase[0] for phrase in phrases]
    for i, text in enumerate([texts[0], *extra, *texts[1:], "."]):
        words = text.split()
        if about is not None and i == (about if about == 0 else about + len(extra)):
            evidence = frozenset(range(len(premise), len(premise) + len(words)))
        premise += words
    return Entailment(tuple(premise), (*hypothesis.split(), "."), label, evidence)
