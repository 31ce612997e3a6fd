"""Every contestant on one case, timed in turns, and its time over softmax's."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regmax.bench.cases import Case, tensors
from regmax.bench.contestants import MAPPINGS, REFERENCE, RUNS, calls
from regmax.timing import Times, race


@dataclass(frozen=True)
class Result:
    """One contestant in one case: its time relative to softmax in the same round, with quartiles."""

    scores: str
    n: int
    d: int
    run: str
    threads: int
    contestant: str
    ratio: float
    low: float
    high: float
    microseconds: float  # the median
    best: float  # the fastest turn, in microseconds
    turns: int
    disturbed: int  # turns during which the operating system gave a core to another process

    @property
    def case(self) -> Case:
        """The case that was timed."""
        return Case(self.scores, self.n, self.d)


def compare(
    case: Case,
    *,
    threads: Sequence[int] = (1,),
    mappings: Sequence[str] = MAPPINGS,
    peers: bool = True,
    seconds: float = 0.3,
) -> Iterator[Result]:
    """Time every contestant on one case, for about `seconds` each, forward and forward + backward."""
    given = tensors(case)
    for run in RUNS:
        times = race(calls(given, run, mappings, peers=peers), threads=threads, seconds=seconds)
        for (count, name), own in times.items():
            yield _result(case, run, count, name, own, times[count, REFERENCE].taken)


def _result(
    case: Case, run: str, threads: int, name: str, own: Times, reference: NDArray[np.float64]
) -> Result:
    took_part = ~np.isnan(own.taken)
    ratios, microseconds = (own.taken / reference)[took_part], own.taken[took_part] / 1e3
    low, ratio, high = (float(q) for q in np.quantile(ratios, (0.25, 0.5, 0.75)))
    median, best = float(np.median(microseconds)), float(microseconds.min())
    where = (case.scores, case.n, case.d, run, threads, name)
    return Result(*where, ratio, low, high, median, best, int(took_part.sum()), own.disturbed)
