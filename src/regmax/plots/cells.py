"""What a heat map draws in a row of weights: one piece for every run of exactly equal neighbours, and clusters."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[Any]


@dataclass(frozen=True)
class Run:
    """Neighbours start, ..., stop - 1 of a row that have exactly the same weight."""

    row: int
    start: int
    stop: int
    weight: float


def runs(weights: Weights) -> Iterator[Run]:
    """The runs of every row, from left to right; NaN marks deleted positions, which belong to none.

    Example:
        >>> [(run.start, run.stop, run.weight) for run in runs(np.array([[0.4, 0.4, 0.2, np.nan, 0.0, 0.0]]))]
        [(0, 2, 0.4), (2, 3, 0.2), (4, 6, 0.0)]
    """
    for row, y in enumerate(weights.tolist()):
        start = 0
        # NaN differs from itself: a key that is equal for neighbours on both sides of the question "deleted?".
        for weight, run in groupby(None if value != value else value for value in y):
            stop = start + len(list(run))
            if weight is not None:
                yield Run(row, start, stop, weight)
            start = stop


def clusters(y: Weights) -> list[list[int]]:
    """The positions that share a nonzero weight with another, one list per weight, from the largest weight.

    Example:
        >>> clusters(np.array([0.1, 0.3, 0.1, 0.2, 0.3, 0.0]))
        [[1, 4], [0, 2]]
    """
    values, counts = np.unique(y[y > 0], return_counts=True)
    return [np.flatnonzero(y == value).tolist() for value in values[counts > 1][::-1]]
