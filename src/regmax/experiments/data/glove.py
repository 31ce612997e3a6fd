"""GloVe's text format: one word and its numbers per line."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regmax.experiments.data.lines import bad_line, read_lines
from regmax.experiments.errors import ExperimentError


def read_glove(path: Path, words: Sequence[str]) -> tuple[NDArray[np.float32], int]:
    """The vectors of `words`, one row each, and how many were found; the others are zero."""
    rows = {word: i for i, word in enumerate(words)}
    lines = read_lines(path)
    d = len(lines[0].split(" ")) - 1
    vectors = np.zeros((len(words), d), np.float32)
    found: set[str] = set()
    for number, line in enumerate(lines, 1):
        word, *numbers = line.split(" ")
        if len(numbers) != d or d == 0:
            raise bad_line(path, number, f"a word and {d} numbers are needed. Got {len(numbers)} numbers.")
        if word in rows:
            vectors[rows[word]] = _vector(numbers, path, number)
            found.add(word)
    if not found:
        raise ExperimentError(f"{path} has no vector for any of the {len(words)} words of the vocabulary.")
    return vectors, len(found)


def _vector(numbers: Sequence[str], path: Path, number: int) -> NDArray[np.float32]:
    try:
        vector = np.array([float(text) for text in numbers], np.float32)
    except ValueError as error:
        raise bad_line(path, number, f"not a number ({error}).") from error
    if not np.isfinite(vector).all():
        raise bad_line(path, number, "a number is not finite.")
    return vector
