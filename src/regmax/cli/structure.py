"""The structure of a row of weights: zeros, segments, clusters."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from string import ascii_uppercase

import numpy as np
from numpy.typing import NDArray

from regmax import groups

Weights = NDArray[np.float64]


@dataclass(frozen=True)
class Row:
    """A mapping's weights for one sentence."""

    name: str
    parameter: str
    y: Weights
    clustered: bool = False  # equal weights form clusters, not only segments
    gap: float | None = None  # the duality gap: how far the weights are from the optimum at most

    @property
    def setting(self) -> str:
        """The mapping as written on the command line: `fusedmax,lam=0.1`."""
        return ",".join(filter(None, (self.name, self.parameter)))


def runs(y: Weights) -> list[tuple[int, int]]:
    """The ranges [start, stop) of adjacent exactly equal weights, zeros included, from left to right.

    Example:
        >>> runs(np.array([0.4, 0.4, 0.2, 0.0, 0.0]))
        [(0, 2), (2, 3), (3, 5)]
    """
    starts = np.flatnonzero(groups(y).starts).tolist()
    return list(pairwise([*starts, y.size]))


def brackets(y: Weights) -> list[str]:
    """One character per weight: a vertical bracket along every segment of two or more weights.

    Example:
        >>> "".join(brackets(np.array([0.3, 0.3, 0.3, 0.1, 0.0, 0.0])))
        '╭│╰   '
    """
    pieces: list[str] = []
    for start, stop in runs(y):
        length = stop - start
        pieces += [" "] * length if length == 1 or y[start] == 0 else ["╭", *"│" * (length - 2), "╰"]
    return pieces


def clusters(y: Weights) -> list[str]:
    """One letter per weight that occurs more than once in the row, adjacent or not; A is the largest such weight.

    Example:
        >>> "".join(clusters(np.array([0.3, 0.1, 0.3, 0.2, 0.1, 0.0])))
        'ABA B '
    """
    counts = Counter(value for value in y.tolist() if value != 0)
    repeated = sorted((value for value, count in counts.items() if count > 1), reverse=True)
    letters = dict(zip(repeated, ascii_uppercase, strict=False))
    return [letters.get(value, " ") for value in y.tolist()]
