"""Pairs of token sequences: parallel text, article and title, several references, keep-masks."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regmax.experiments.data.lines import bad_line, read_lines, read_parallel
from regmax.experiments.errors import ExperimentError

Tokens = tuple[str, ...]
Alignment = tuple[frozenset[int], ...]


@dataclass(frozen=True)
class Pair:
    """A source and its references."""

    source: Tokens
    references: tuple[Tokens, ...]
    alignment: Alignment | None = None  # for each target word, the source positions that it stands for

    @property
    def target(self) -> Tokens:
        """The first reference, used in training."""
        return self.references[0]


def read_pairs(paths: Sequence[Path], *, lower: bool = True) -> list[Pair]:
    """Pairs from line-parallel files: the source, then one file per reference."""
    if len(paths) < 2:
        raise ExperimentError(f"A source and a target file are needed. Got {len(paths)} file(s).")
    pairs = []
    for columns in read_parallel(paths):
        source, *references = (tuple((c.lower() if lower else c).split()) for c in columns)
        pairs.append(Pair(source, tuple(references)))
    return pairs


def require_words(pairs: Sequence[Pair], paths: Sequence[Path]) -> None:
    """Raise at the first blank line: a dev or test set must not shrink silently."""
    for number, pair in enumerate(pairs, 1):
        for path, tokens in zip(paths, (pair.source, *pair.references), strict=True):
            if not tokens:
                raise bad_line(path, number, "blank.")


def prune(pairs: Sequence[Pair], longest: int) -> list[Pair]:
    """The pairs whose source and target have between 1 and `longest` words."""
    kept = [pair for pair in pairs if 0 < len(pair.source) <= longest and 0 < len(pair.target) <= longest]
    if not kept:
        raise ExperimentError(f"No pair of {len(pairs)} has between 1 and {longest} words on both sides.")
    return kept


def with_keep_masks(pairs: Sequence[Pair], path: Path) -> list[Pair]:
    """The pairs aligned by keep-masks: one 0 or 1 per source word; the kept words are the target."""
    lines = read_lines(path)
    if len(lines) != len(pairs):
        raise ExperimentError(f"{path} has {len(lines)} lines for {len(pairs)} pairs.")
    return [_aligned(pair, line, path, i) for i, (pair, line) in enumerate(zip(pairs, lines, strict=True), 1)]


def _aligned(pair: Pair, line: str, path: Path, number: int) -> Pair:
    if set(line) - set("01") or len(line) != len(pair.source):
        raise bad_line(path, number, f"{len(pair.source)} characters 0 or 1 are needed. Got {line!r}.")
    kept = [i for i, mark in enumerate(line) if mark == "1"]
    if tuple(pair.source[i] for i in kept) != pair.target:
        raise bad_line(path, number, "the words that the mask keeps are not the target.")
    return Pair(pair.source, pair.references, tuple(frozenset([i]) for i in kept))
