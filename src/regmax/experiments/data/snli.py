"""SNLI's JSON lines."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regmax.experiments.data.lines import bad_line, read_lines
from regmax.experiments.errors import ExperimentError
from regmax.files import is_text, parse_json

LABELS = ("entailment", "neutral", "contradiction")
MISSING = "-"  # the annotators disagreed: the paper skips these pairs

# Words, clitics and punctuation. Treebank tokens and raw text give the same result: "do n't" and "don't" are both
# (do, n't), and punctuation marks are separate tokens in both.
_WORD = re.compile(r"\w+(?=n't\b)|n't\b|'\w+|\w+|[^\w\s]")


@dataclass(frozen=True)
class Entailment:
    """A premise, a hypothesis and the number of their label in `LABELS`."""

    premise: tuple[str, ...]
    hypothesis: tuple[str, ...]
    label: int
    evidence: frozenset[int] | None = None  # the premise positions that decide the label, if known


def tokenize(text: str) -> tuple[str, ...]:
    """Lower-cased words, clitics and punctuation.

    Example:
        >>> tokenize("A dog doesn't swim.") == tokenize("A dog does n't swim .")
        True
    """
    return tuple(_WORD.findall(text.lower()))


def read_snli(path: Path, *, parses: bool) -> list[Entailment]:
    """The labelled pairs of a file.

    Args:
        path: SNLI's JSON lines, gzip-compressed or plain.
        parses: take the tokens from `sentence1_binary_parse` and `sentence2_binary_parse`, as in the paper; otherwise
            `tokenize` the plain sentences.
    """
    pairs = [_pair(line, path, number, parses) for number, line in enumerate(read_lines(path), 1)]
    labelled = [pair for pair in pairs if pair is not None]
    if not labelled:
        raise ExperimentError(f"{path} has no labelled pair.")
    return labelled


def _pair(line: str, path: Path, number: int, parses: bool) -> Entailment | None:
    try:
        record = parse_json(line)
    except ValueError as error:
        raise bad_line(path, number, f"not JSON ({error}).") from error
    if not isinstance(record, dict):
        raise bad_line(path, number, "not a JSON object.")
    label = _text(record, "gold_label", path, number)
    if label == MISSING:
        return None
    if label not in LABELS:
        raise bad_line(path, number, f"gold_label must be one of {', '.join(LABELS)} or -. Got {label!r}.")
    premise, hypothesis = (
        _tokens(record, field, path, number, parses) for field in ("sentence1", "sentence2")
    )
    return Entailment(premise, hypothesis, LABELS.index(label))


def _tokens(record: dict[str, Any], field: str, path: Path, number: int, parses: bool) -> tuple[str, ...]:
    if parses:
        text = _text(record, f"{field}_binary_parse", path, number)
        tokens = tuple(token for token in text.split() if token not in "()")
    else:
        tokens = tokenize(_text(record, field, path, number))
    if not tokens:
        raise bad_line(path, number, f"{field} has no words.")
    return tokens


def _text(record: dict[str, Any], field: str, path: Path, number: int) -> str:
    text = record.get(field)
    if not isinstance(text, str) or not is_text(text):
        raise bad_line(path, number, f"the field {field} is missing or not a string.")
    return text
