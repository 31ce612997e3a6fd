"""News sentences and their headlines by a small grammar.

A headline keeps subject, verb and object, drops the rest, and shortens some phrases to one word ("prime minister" is
"premier").
"""

import random

from regmax.experiments.data.pairs import Pair

# phrase, its word in a headline
_WHO = (
    ("the prime minister of france", "premier"), ("the united nations", "un"), ("the central bank", "bank"),
    ("two police officers", "police"), ("the head of state", "president"), ("thousands of people", "thousands"),
    ("the opposition party", "opposition"), ("the stock exchange", "market"),
)  # fmt: skip
_DOES = (
    ("has spoken out against", "criticizes"), ("has agreed to", "accepts"), ("is looking into", "investigates"),
    ("has put an end to", "stops"), ("will take part in", "joins"), ("has called for", "demands"),
)  # fmt: skip
_WHAT = (
    ("a new round of peace talks", "talks"), ("a rise in interest rates", "hike"), ("a vote of no confidence", "vote"),
    ("the search for survivors", "search"), ("a cut in public spending", "cuts"), ("an election", "election"),
)  # fmt: skip
_WHERE = ("in berlin", "in new york", "in the capital", "near the border")
_WHEN = ("on monday", "late on tuesday", "earlier this week", "for the first time in years")
_SOURCE = (
    "officials said",
    "according to a report",
    "a spokesman said on sunday",
    "witnesses told reporters",
)


def headline(draw: random.Random) -> Pair:
    """A sentence, its headline, and for each word of the headline the positions of its source phrase.

    Example:
        >>> pair = headline(random.Random(0))
        >>> len(pair.target) < len(pair.source), len(pair.alignment) == len(pair.target)
        (True, True)
    """
    kept = [draw.choice(group) for group in (_WHO, _DOES, _WHAT)]
    dropped = [draw.choice(group) if draw.random() < 0.6 else "" for group in (_WHERE, _WHEN, _SOURCE)]
    keep_where = bool(dropped[0]) and draw.random() < 0.5
    pieces: list[tuple[str, str]] = [*kept, *((phrase, "") for phrase in dropped), (".", "")]
    if keep_where:
        # A comma before the place marks it as important: the headline then keeps its last word.
        pieces[3:4] = [(",", ""), (dropped[0], dropped[0].split()[-1])]
    if draw.random() < 0.5:
        when = pieces.pop(-3)  # the time may come first
        pieces.insert(0, when)
    return _pair(pieces)


def _pair(pieces: list[tuple[str, str]]) -> Pair:
    source: list[str] = []
    target, alignment = [], []
    for phrase, word in pieces:
        words = phrase.split()
        if word:
            target.append(word)
            alignment.append(frozenset(range(len(source), len(source) + len(words))))
        source += words
    return Pair(tuple(source), (tuple(target),), tuple(alignment))
