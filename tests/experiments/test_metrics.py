"""Scores equal the libraries' own values and worked examples."""

from __future__ import annotations

import numpy as np
import pytest
import sacrebleu
from rouge_score.rouge_scorer import RougeScorer

import regmax
from regmax.experiments.metrics.attention import AttentionStatistics
from regmax.experiments.metrics.bleu import bleu
from regmax.experiments.metrics.rouge import rouge, truncate
from regmax.experiments.metrics.rouge_w import rouge_w
from regmax.experiments.metrics.sentences import score as score_of
from regmax.experiments.metrics.sentences import sentences

HYPOTHESES = ["the dog sat on a mat .", "two cats sleep in the sun today ."]
REFERENCES = [
    ["the dog sat on the mat .", "a dog is on the mat ."],
    ["two cats are sleeping in the sun .", "two cats sleep in the sun ."],
]


def split(texts: list[str]) -> list[list[str]]:
    return [text.split() for text in texts]


@pytest.mark.parametrize("count", [1, 2])
def test_bleu_equals_sacrebleu(count: int) -> None:
    columns = [[references[i] for references in REFERENCES] for i in range(count)]
    expected = sacrebleu.corpus_bleu(HYPOTHESES, columns, tokenize="none", force=True).score
    score, signature = bleu(split(HYPOTHESES), [split(references[:count]) for references in REFERENCES])
    assert score == expected
    assert f"nrefs:{count}|case:mixed|eff:no|tok:none|smooth:exp|version:" in signature


def test_sums_over_sentences_give_the_scores_of_the_corpus() -> None:
    references = [tuple(row) for row in REFERENCES]
    found = sentences("translation", HYPOTHESES, references).statistics
    assert (
        score_of("BLEU", found["BLEU"].sum(0), 2)
        == bleu(split(HYPOTHESES), [split(r) for r in REFERENCES])[0]
    )
    found = sentences("summarization", HYPOTHESES, references).statistics
    expected = rouge(split(HYPOTHESES), [split(r) for r in REFERENCES])
    for name, rows in found.items():
        assert score_of(name, rows.sum(0), 2) == pytest.approx(expected[name].f1, abs=0.01)


def test_bleu_of_a_worked_example() -> None:
    # 6 of 7 words, 4 of 6 bigrams, 2 of 5 trigrams, 1 of 4 four-grams; the lengths are equal.
    score, _ = bleu([HYPOTHESES[0].split()], [[REFERENCES[0][0].split()]])
    assert score == pytest.approx(100 * (6 / 7 * 4 / 6 * 2 / 5 * 1 / 4) ** 0.25)


def test_rouge_equals_rouge_score_for_one_reference_and_for_the_best() -> None:
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"])  # its own tokenizer does not change plain words
    plain = [text.replace(" .", "") for text in HYPOTHESES]
    references = [[text.replace(" .", "") for text in row] for row in REFERENCES]
    scores = rouge(split(plain), [split(row) for row in references], best=True)
    for key, name in (("rouge1", "ROUGE-1"), ("rouge2", "ROUGE-2"), ("rougeL", "ROUGE-L")):
        expected = [scorer.score_multi(row, text)[key] for row, text in zip(references, plain, strict=True)]
        assert scores[name].f1 == pytest.approx(100 * np.mean([e.fmeasure for e in expected]))
        assert scores[name].precision == pytest.approx(100 * np.mean([e.precision for e in expected]))
        assert scores[name].recall == pytest.approx(100 * np.mean([e.recall for e in expected]))


def test_rouge_takes_the_mean_over_references() -> None:
    single = [rouge(split(HYPOTHESES), [[row[i].split()] for row in REFERENCES]) for i in range(2)]
    both = rouge(split(HYPOTHESES), [split(row) for row in REFERENCES])
    for name in both:
        assert both[name].f1 == pytest.approx((single[0][name].f1 + single[1][name].f1) / 2)


def test_rouge_counts_signs_and_unknown_words() -> None:
    scores = rouge([["<unk>", "##", "a"]], [[["<unk>", "##", "b"]]])
    assert scores["ROUGE-1"].f1 == pytest.approx(200 / 3)


@pytest.mark.parametrize(
    ("hypothesis", "reference", "weight", "expected"),
    [
        ("ABCDHIK", "ABCDEFG", 2, (16 / 49) ** 0.5),  # Lin (2004): consecutive matches
        ("AHBKCID", "ABCDEFG", 2, (4 / 49) ** 0.5),  # ... and scattered ones
        ("AB", "AB", 1.2, 1.0),
        ("AB", "BA", 1.2, 1 / 2),
        # 2 consecutive matches and 1: (2 ** 1.2 + 1) ** (1 / 1.2) of 4 words
        ("ABXC", "ABYC", 1.2, (2**1.2 + 1) ** (1 / 1.2) / 4),
        ("ABC", "XYZ", 1.2, 0.0),
        ("", "ABC", 1.2, 0.0),
    ],
)
def test_rouge_w_of_worked_examples(hypothesis: str, reference: str, weight: float, expected: float) -> None:
    assert rouge_w(hypothesis, reference, weight=weight).f1 == pytest.approx(expected)


def test_rouge_w_without_weight_is_rouge_l() -> None:
    for text, row in zip(split(HYPOTHESES), REFERENCES, strict=True):
        ours = rouge_w(text, row[0].split(), weight=1)
        theirs = rouge([text], [[row[0].split()]])["ROUGE-L"]
        assert [100 * value for value in ours] == pytest.approx(list(theirs))


def test_rouge_w_has_precision_and_recall() -> None:
    score = rouge_w("AB", "ABCD")
    assert score.precision == pytest.approx(1)
    assert score.recall == pytest.approx(1 / 2)
    assert score.f1 == pytest.approx(2 / 3)


def test_truncation_counts_bytes_and_keeps_characters_whole() -> None:
    assert truncate(["grün", "blau"], 7) == ("grün", "b")
    assert truncate(["grün"], 3) == ("gr",)
    assert truncate(["a"] * 100, 75) == ("a",) * 38


def test_attention_statistics_of_a_worked_example() -> None:
    y = np.array([[0.25, 0.25, 0.0, 0.5, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0]])
    statistics = AttentionStatistics()
    statistics.add(y, [frozenset({0, 1, 2}), frozenset({3})])
    means = statistics.means()
    assert means["support"] == 2
    assert means["zeros"] == pytest.approx(60)
    assert means["segments"] == 1.5  # .25 .25 | .5, and 1
    assert means["segment length"] == pytest.approx(4 / 3)
    assert means["spans"] == 1.5
    assert means["clusters"] == 1.5
    assert means["entropy"] == pytest.approx((0.5 * np.log(4) + 0.5 * np.log(2)) / 2)
    assert means["precision"] == pytest.approx(100 * (2 / 3 + 0) / 2)
    assert means["recall"] == pytest.approx(100 * (2 / 3 + 0) / 2)
    assert means["mass"] == pytest.approx(25)


def test_fusedmax_has_longer_segments_and_oscarmax_larger_clusters() -> None:
    x = np.random.default_rng(0).normal(size=(200, 12)).cumsum(1) / 4
    means = {}
    for name, function in {
        "sparsemax": regmax.sparsemax(x),
        "fusedmax": regmax.fusedmax(x, lam=0.2),
        "oscarmax": regmax.oscarmax(x, lam=0.05),
    }.items():
        statistics = AttentionStatistics()
        statistics.add(function)
        means[name] = statistics.means()
    assert means["fusedmax"]["segment length"] > 1.2 > means["sparsemax"]["segment length"]
    assert means["oscarmax"]["cluster size"] > 1.2 > means["sparsemax"]["cluster size"]


def test_softmax_has_no_zeros() -> None:
    statistics = AttentionStatistics()
    statistics.add(regmax.softmax(np.random.default_rng(0).normal(size=(5, 7))))
    assert statistics.means()["zeros"] == 0
    assert "precision" not in statistics.means()
