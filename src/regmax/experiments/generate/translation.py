"""English to German by a small grammar.

Phrases become single words ("in front of" is "vor", "traffic light" is "ampel"), articles agree with the gender
and case of their noun, the participle goes to the end ("has looked at the dog" is "hat den hund betrachtet"). So
attention must find phrases, and cannot follow the diagonal.
"""

import random
from dataclasses import dataclass

from regmax.experiments.data.pairs import Pair

# English, German, gender
_NOUNS = (
    ("dog", "hund", "m"), ("man", "mann", "m"), ("tree", "baum", "m"), ("fire fighter", "feuerwehrmann", "m"),
    ("ice cream", "eis", "n"), ("child", "kind", "n"), ("horse", "pferd", "n"), ("swimming pool", "schwimmbad", "n"),
    ("woman", "frau", "f"), ("cat", "katze", "f"), ("traffic light", "ampel", "f"), ("coffee cup", "kaffeetasse", "f"),
    ("guinea pig", "meerschweinchen", "n"), ("police officer", "polizist", "m"), ("train station", "bahnhof", "m"),
    ("bridge", "brücke", "f"),
)  # fmt: skip
# English, German stem
_ADJECTIVES = (
    ("small", "klein"), ("big", "groß"), ("old", "alt"), ("young", "jung"), ("light blue", "hellblau"),
    ("brand new", "nagelneu"), ("good looking", "hübsch"),
)  # fmt: skip
# English participle, German participle
_VERBS = (
    ("seen", "gesehen"), ("looked at", "betrachtet"), ("looked for", "gesucht"), ("found", "gefunden"),
    ("taken care of", "versorgt"), ("got rid of", "beseitigt"), ("run away from", "gemieden"), ("heard", "gehört"),
)  # fmt: skip
_PLACES = (
    ("in front of", "vor"),
    ("next to", "neben"),
    ("on top of", "auf"),
    ("behind", "hinter"),
    ("near", "bei"),
)
_TIMES = (("yesterday", "gestern"), ("as soon as possible", "schnellstmöglich"), ("every day", "täglich"),
          ("once in a while", "gelegentlich"))  # fmt: skip

_CASES = {
    "nominative": ("der", "das", "die"),
    "accusative": ("den", "das", "die"),
    "dative": ("dem", "dem", "der"),
}
_ARTICLE = {(case, g): word for case, words in _CASES.items() for g, word in zip("mnf", words, strict=True)}


@dataclass(frozen=True)
class _Piece:
    """One German word and the English phrase that it translates."""

    german: str
    english: str


def sentence(draw: random.Random) -> Pair:
    """A sentence, its translation, and for each German word the positions of the English phrase.

    Example:
        >>> pair = sentence(random.Random(3))
        >>> [(word, [pair.source[i] for i in sorted(a)]) for word, a in zip(pair.target, pair.alignment)][-2:]
        [('gesucht', ['looked', 'for']), ('.', ['.'])]
    """
    subject, verb, thing = (
        _noun_phrase(draw, "nominative"),
        draw.choice(_VERBS),
        _noun_phrase(draw, "accusative"),
    )
    place = (
        [_Piece(*reversed(draw.choice(_PLACES))), *_noun_phrase(draw, "dative")]
        if draw.random() < 0.6
        else []
    )
    when = [_Piece(*reversed(draw.choice(_TIMES)))] if draw.random() < 0.5 else []
    has, done, stop = _Piece("hat", "has"), _Piece(verb[1], verb[0]), _Piece(".", ".")
    english = [*subject, has, done, *thing, *place, *when, stop]
    german = [*subject, has, *when, *thing, *place, done, stop]
    return _pair(english, german)


def _noun_phrase(draw: random.Random, case: str) -> list[_Piece]:
    english, german, gender = draw.choice(_NOUNS)
    pieces = [_Piece(_ARTICLE[case, gender], "the")]
    if draw.random() < 0.5:
        adjective, stem = draw.choice(_ADJECTIVES)
        weak = case == "nominative" or (case == "accusative" and gender != "m")
        pieces.append(_Piece(stem + ("e" if weak else "en"), adjective))
    return [*pieces, _Piece(german, english)]


def _pair(english: list[_Piece], german: list[_Piece]) -> Pair:
    source: list[str] = []
    places: dict[int, frozenset[int]] = {}
    for piece in english:
        words = piece.english.split()
        places[id(piece)] = frozenset(range(len(source), len(source) + len(words)))
        source += words
    return Pair(
        tuple(source),
        (tuple(piece.german for piece in german),),
        tuple(places[id(piece)] for piece in german),
    )
