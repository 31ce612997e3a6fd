"""Statistics of rows of attention weights, and how well they find the aligned words."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

import regmax

Weights = NDArray[np.floating[Any]]


class AttentionStatistics:
    """Means over all rows that were added.

    - support: weights that are not exactly zero; zeros: the share of the others, in percent
    - segments: maximal sequences of adjacent equal nonzero weights; segment length: weights per segment
    - spans: maximal sequences of adjacent nonzero weights, equal or not; span length: weights per span
    - clusters: distinct nonzero weights; cluster size: weights per cluster
    - entropy: in nats
    - precision: the share of the support that is aligned; recall: the share of the aligned words that is in the
      support; mass: the weight on aligned words; all in percent, over the rows whose alignment is known

    Example:
        >>> statistics = AttentionStatistics()
        >>> statistics.add(np.array([[0.25, 0.25, 0.0, 0.5]]), [{0, 1}])
        >>> means = statistics.means()
        >>> means["support"], means["segments"], means["spans"], means["clusters"]
        (3.0, 2.0, 2.0, 2.0)
        >>> means["mass"], means["recall"]
        (50.0, 100.0)
    """

    def __init__(self) -> None:
        self._rows: dict[str, list[float]] = {}

    def add(self, y: Weights, gold: Sequence[frozenset[int] | set[int]] | None = None) -> None:
        """Add rows (targets, d) of weights without padding, and the aligned positions of each if they are known."""
        if not len(y):
            return
        support = y != 0
        equal = regmax.groups(y).ids
        clusters = regmax.groups(y, contiguous=False).ids
        starts = support & ~np.pad(support, [(0, 0), (1, 0)])[:, :-1]
        logs = np.log(y, out=np.zeros_like(y), where=support)
        self._extend("support", support.sum(1))
        self._extend("zeros", 100 * (1 - support.mean(1)))
        self._extend("segments", equal.max(1))
        self._extend("spans", starts.sum(1))
        self._extend("clusters", clusters.max(1))
        self._extend("entropy", -(y * logs).sum(1))
        for row, positions in zip(y, gold or (), strict=False):
            if positions:
                self._align(row, positions)

    def means(self) -> dict[str, float]:
        """The means by name; a length is the number of weights divided by the number of groups."""
        means = {name: fmean(values) for name, values in self._rows.items()}
        for runs, length in (
            ("segments", "segment length"),
            ("spans", "span length"),
            ("clusters", "cluster size"),
        ):
            if means:
                means[length] = means["support"] / means[runs] if means[runs] else 0.0
        return means

    def _align(self, row: Weights, positions: frozenset[int] | set[int]) -> None:
        support = set(np.flatnonzero(row).tolist())
        hits = len(support & positions)
        self._extend("precision", [100 * hits / len(support)] if support else [0.0])
        self._extend("recall", [100 * hits / len(positions)])
        self._extend("mass", [100 * float(row[sorted(positions)].sum())])

    def _extend(self, name: str, values: Any) -> None:
        self._rows.setdefault(name, []).extend(float(value) for value in values)
