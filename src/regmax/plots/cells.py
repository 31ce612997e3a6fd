"""The cells of a heat map: one rectangle per range of adjacent exactly equal weights, and clusters."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[Any]


@dataclass(frozen=True)
class Run:
    """Positions start, ..., stop - 1 of a row, which have exactly the same weight: a segment, or zeros."""

    row: int
    start: int
    stop: int
    weight: float


def runs(weights: Weights) -> Iterator[Run]:
    """The ranges of equal weights in every row, from left to right; NaN marks deleted positions, which are skipped.

    Example:
        >>> [(run.start, run.stop, run.weight) for run in runs(np.array([[0.4, 0.4, 0.2, np.nan, 0.0, 0.0]]))]
        [(0, 2, 0.4), (2, 3, 0.2), (4, 6, 0.0)]
    """
    for row, y in enumerate(weights.tolist()):
        start = 0
        # NaN differs from itself, so the key of a deleted position must be another value.
        for weight, run in groupby(None if value != value else value for value in y):
            stop = start + len(list(run))
            if weight is not None:
                yield Run(row, start, stop, weight)
            start = stop


def clusters(y: Weights) -> list[list[int]]:
    """The clusters of two or more positions, one list per weight, from the largest weight.

    Example:
        >>> clusters(np.array([0.1, 0.3, 0.1, 0.2, 0.3, 0.0]))
        [[1, 4], [0, 2]]
    """
    values, counts = np.unique(y[y > 0], return_counts=True)
    return [np.flatnonzero(y == value).tolist() for value in values[counts > 1][::-1]]
