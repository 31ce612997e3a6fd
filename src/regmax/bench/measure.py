"""Every contestant on one case, timed in turns, and its time over softmax's."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
    found = relative(own, reference)
    best = float(np.nanmin(own.taken)) / 1e3
    where = (case.scores, case.n, case.d, run, threads, name)
    return Result(
        *where, found.ratio, found.low, found.high, found.microseconds, best, found.turns, own.disturbed
    )


class Relative(NamedTuple):
    """Times relative to those of a reference in the same rounds: the median, with quartiles."""

    ratio: float
    low: float
    high: float
    microseconds: float  # the median time
    turns: int


def relative(own: Times, reference: NDArray[np.float64]) -> Relative:
    """Compare a call with the reference in the rounds in which it took part."""
    took_part = ~np.isnan(own.taken)
    ratios = (own.taken / reference)[took_part]
    low, ratio, high = (float(q) for q in np.quantile(ratios, (0.25, 0.5, 0.75)))
    return Relative(ratio, low, high, float(np.nanmedian(own.taken)) / 1e3, int(took_part.sum()))
