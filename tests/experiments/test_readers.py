"""Corpora are read correctly, and errors name the file and the line number."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from regmax.experiments.data.batches import batches, in_order
from regmax.experiments.data.glove import read_glove
from regmax.experiments.data.lines import read_lines
from regmax.experiments.data.pairs import prune, read_pairs, require_words, with_keep_masks
from regmax.experiments.data.snli import read_snli
from regmax.experiments.data.vocabulary import END, UNKNOWN, Vocabulary
from regmax.experiments.errors import ExperimentError

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write_file


def record(label: str = "neutral", **fields: str) -> str:
    return json.dumps({"gold_label": label, "sentence1": "A dog runs.", "sentence2": "A cat.", **fields})


@pytest.mark.parametrize("name", ["plain", "compressed.gz"])
def test_text_is_read_plain_and_compressed(write: Write, name: str) -> None:
    assert read_lines(write(name, "eins\r\nzwei \u2028 drei\n")) == ["eins", "zwei \u2028 drei"]


def test_an_empty_file_is_named(write: Write) -> None:
    with pytest.raises(ExperimentError, match=r"train.en is empty"):
        read_lines(write("train.en", ""))


def test_text_that_is_not_utf8_is_reported_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"good\nb\xffd\n")
    with pytest.raises(ExperimentError, match=r"a, line 2: not UTF-8 \(invalid start byte at byte 1\)"):
        read_lines(tmp_path / "a")


def test_a_truncated_gzip_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"text\n" * 100)[:-9])
    with pytest.raises(ExperimentError, match=r"a.gz is not a complete gzip file"):
        read_lines(tmp_path / "a.gz")


def test_pairs_have_several_references_and_are_lower_cased(write: Write) -> None:
    (pair,) = read_pairs([write("s", "The Dog\n"), write("r0", "Ein Hund\n"), write("r1", "Der Hund\n")])
    assert pair.source == ("the", "dog")
    assert pair.references == (("ein", "hund"), ("der", "hund"))
    assert pair.target == ("ein", "hund")


def test_files_of_different_length_are_refused(write: Write) -> None:
    with pytest.raises(ExperimentError, match=r"the same number of lines: .*s has 2, .*t has 1\."):
        read_pairs([write("s", "a\nb\n"), write("t", "a\n")])


def test_a_source_without_a_target_file_is_refused(write: Write) -> None:
    with pytest.raises(ExperimentError, match=r"A source and a target file are needed. Got 1 file"):
        read_pairs([write("s", "a\n")])


def test_a_blank_line_of_a_test_set_is_reported(write: Write) -> None:
    paths = [write("s", "a\nb\n"), write("t", "a\n \n")]
    with pytest.raises(ExperimentError, match=r"t, line 2: blank"):
        require_words(read_pairs(paths), paths)


def test_training_pairs_are_pruned_by_length(write: Write) -> None:
    pairs = read_pairs([write("s", "a\na b c\n\nd\n"), write("t", "x\nx\nx\nx y z\n")])
    assert [pair.source for pair in prune(pairs, 2)] == [("a",)]
    with pytest.raises(ExperimentError, match=r"No pair of 1 has between 1 and 2 words"):
        prune(pairs[1:2], 2)


def test_keep_masks_align_the_kept_words(write: Write) -> None:
    pairs = read_pairs([write("s", "a b c\n"), write("t", "a c\n")])
    (pair,) = with_keep_masks(pairs, write("m", "101\n"))
    assert pair.alignment == (frozenset({0}), frozenset({2}))


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        ("10\n", r"m, line 1: 3 characters 0 or 1 are needed. Got '10'"),
        ("1x1\n", r"m, line 1: 3 characters 0 or 1 are needed. Got '1x1'"),
        ("110\n", r"m, line 1: the words that the mask keeps are not the target"),
        ("101\n101\n", r"m has 2 lines for 1 pairs"),
    ],
)
def test_wrong_keep_masks_are_reported(write: Write, masks: str, message: str) -> None:
    pairs = read_pairs([write("s", "a b c\n"), write("t", "a c\n")])
    with pytest.raises(ExperimentError, match=message):
        with_keep_masks(pairs, write("m", masks))


def test_snli_skips_pairs_without_a_label(write: Write) -> None:
    (pair,) = read_snli(write("a.jsonl.gz", f"{record('-')}\n{record('contradiction')}\n"), parses=False)
    assert pair.premise == ("a", "dog", "runs", ".")
    assert pair.label == 2


def test_snli_takes_tokens_from_parses(write: Write) -> None:
    parse = {"sentence1_binary_parse": "( ( A dog ) ( runs . ) )", "sentence2_binary_parse": "( Do n't )"}
    (pair,) = read_snli(write("a", record(**parse) + "\n"), parses=True)
    assert pair.premise == ("A", "dog", "runs", ".")
    assert pair.hypothesis == ("Do", "n't")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"a, line 2: not JSON"),
        ("[1]", r"a, line 2: not a JSON object"),
        ("[" * 100_000, r"a, line 2: not JSON \(it is nested too deeply"),
        (record(sentence2="\ud800"), r"a, line 2: the field sentence2 is missing or not a string"),
        ("{}", r"a, line 2: the field gold_label is missing or not a string"),
        (record("maybe"), r"a, line 2: gold_label must be one of .* Got 'maybe'"),
        (record(sentence2=" "), r"a, line 2: sentence2 has no words"),
    ],
)
def test_a_bad_line_of_snli_is_reported(write: Write, line: str, message: str) -> None:
    with pytest.raises(ExperimentError, match=message):
        read_snli(write("a", f"{record()}\n{line}\n"), parses=False)


def test_snli_without_labels_is_refused(write: Write) -> None:
    with pytest.raises(ExperimentError, match="a has no labelled pair"):
        read_snli(write("a", record("-") + "\n"), parses=False)


def test_word_vectors_are_found_and_missing_ones_zero(write: Write) -> None:
    vectors, found = read_glove(write("g.gz", "dog 1 2\nthe 3 4.5\n"), ["the", "cat"])
    assert vectors.tolist() == [[3, 4.5], [0, 0]]
    assert vectors.dtype == np.float32
    assert found == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 2\nb 1\n", r"g, line 2: a word and 2 numbers are needed. Got 1 numbers"),
        ("a 1 2\nb 1 x\n", r"g, line 2: not a number"),
        ("a 1 2\nb 1 inf\n", r"g, line 2: a number is not finite"),
        ("c 1 2\n", r"g has no vector for any of the 2 words"),
    ],
)
def test_bad_word_vectors_are_reported(write: Write, text: str, message: str) -> None:
    with pytest.raises(ExperimentError, match=message):
        read_glove(write("g", text), ["a", "b"])


def test_a_vocabulary_keeps_the_most_frequent_words(tmp_path: Path) -> None:
    vocabulary = Vocabulary.build([["b", "a", "b", "c", "<unk>"]], largest=2)
    assert vocabulary.words[4:] == ("b", "a")
    assert vocabulary.encode(["a", "c", "<unk>"]) == [5, UNKNOWN, UNKNOWN]
    assert vocabulary.decode([4, 5, END, 4]) == ("b", "a")
    vocabulary.save(tmp_path / "words")
    assert Vocabulary.load(tmp_path / "words") == vocabulary


def test_a_vocabulary_of_nothing_is_refused() -> None:
    with pytest.raises(ExperimentError, match=r"The vocabulary is empty: none of 2 words occurs 3 times"):
        Vocabulary.build([["a", "b"]], least_count=3)


def test_a_file_that_is_no_vocabulary_is_refused(write: Write) -> None:
    with pytest.raises(ExperimentError, match=r"words is not a vocabulary"):
        Vocabulary.load(write("words", "a\nb\n"))


def test_batches_hold_every_pair_once_and_depend_on_seed_and_epoch_alone() -> None:
    lengths = [(i % 7, i % 3) for i in range(100)]
    made = batches(lengths, 8, seed=1, epoch=2)
    assert sorted(i for batch in made for i in batch) == list(range(100))
    assert made == batches(lengths, 8, seed=1, epoch=2)
    assert made != batches(lengths, 8, seed=1, epoch=3)
    assert made != batches(lengths, 8, seed=2, epoch=2)
    assert max(len({lengths[i][0] for i in batch}) for batch in made) <= 3
    assert sorted(i for batch in in_order(lengths, 8) for i in batch) == list(range(100))
