"""The generated corpora follow their grammars, alignments included."""

from __future__ import annotations

import random

from regmax.experiments.data.snli import LABELS
from regmax.experiments.generate import entailment, generate, summarization, translation


def phrases(module: object, *groups: str) -> dict[str, str]:
    """The source phrase of each target word, from the grammar's own tables."""
    return {word: phrase for group in groups for phrase, word, *_ in getattr(module, group)}


def test_each_german_word_is_aligned_with_the_phrase_it_translates() -> None:
    expected = phrases(translation, "_NOUNS", "_VERBS", "_PLACES", "_TIMES") | {"hat": "has", ".": "."}
    stems = {german: english for english, german in translation._ADJECTIVES}
    stems_of = {stem + ending: english for stem, english in stems.items() for ending in ("e", "en")}
    articles = dict.fromkeys(translation._ARTICLE.values(), "the")
    expected |= stems_of | articles
    for pair in generate(translation.sentence, 300).train:
        assert pair.alignment is not None
        assert len(pair.alignment) == len(pair.target)
        for word, positions in zip(pair.target, pair.alignment, strict=True):
            assert " ".join(pair.source[i] for i in sorted(positions)) == expected[word]
        # Every English word is translated once.
        assert sorted(i for positions in pair.alignment for i in positions) == list(range(len(pair.source)))


def test_a_word_of_several_articles_agrees_with_its_noun() -> None:
    pair = translation.sentence(random.Random(3))
    assert all(word not in ("the", "has") for word in pair.target)
    cases = {translation._ARTICLE[case, "m"] for case in translation._CASES}
    assert cases == {"der", "den", "dem"}


def test_each_word_of_a_headline_is_aligned_with_its_phrase() -> None:
    expected = phrases(summarization, "_WHO", "_DOES", "_WHAT")
    expected |= {place.split()[-1]: place for place in summarization._WHERE}
    for pair in generate(summarization.headline, 300).train:
        assert pair.alignment is not None
        for word, positions in zip(pair.target, pair.alignment, strict=True):
            assert " ".join(pair.source[i] for i in sorted(positions)) == expected[word]
        assert len(pair.target) < len(pair.source)


def test_the_evidence_of_an_inference_is_the_phrase_it_speaks_of() -> None:
    consequences = {
        (follows, LABELS[label]): phrase
        for group in entailment._GROUPS
        for phrase, *words in group
        for follows, label in zip(words, (0, 2), strict=True)
    }
    labels = set()
    for pair in generate(entailment.inference, 300).train:
        labels.add(pair.label)
        if pair.evidence is None:
            assert LABELS[pair.label] == "neutral"
            continue
        said = " ".join(pair.hypothesis[:-1]).removeprefix("there is ").removeprefix("someone ")
        found = " ".join(pair.premise[i] for i in sorted(pair.evidence))
        known = {
            phrase
            for (text, label), phrase in consequences.items()
            if (text, label) == (said, LABELS[pair.label])
        }
        assert (said, LABELS[pair.label]) in consequences
        assert found in known or any(found in p[0] for group in entailment._GROUPS for p in group)
    assert labels == {0, 1, 2}


def test_sets_are_distinct_and_always_the_same() -> None:
    one, other = generate(translation.sentence, 50, 10), generate(translation.sentence, 50, 10)
    assert one == other
    everything = [*one.train, *one.dev, *one.test]
    assert len(set(everything)) == 70
    # More training data does not change the held-out sets.
    assert generate(translation.sentence, 60, 10).test == one.test
