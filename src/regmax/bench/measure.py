"""Timing in turns: other load on the machine affects every contestant equally, so the ratios remain valid."""

import gc
import math
import random
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from regmax.bench.cases import Case, tensors
from regmax.bench.contestants import MAPPINGS, REFERENCE, RUNS, Call, calls

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

SHORTEST = 200_000  # ns: a shorter timing would measure the clock
FEWEST, MOST = 5, 300  # turns
_ATTEMPTS = 3  # at a turn; after that a disturbed turn counts too
_PATIENCE = 3  # no further rounds if a race takes this many times longer than planned
_ALLOCATION = 31 * 2**20  # bytes: just below the size from which glibc always maps fresh pages

Key = TypeVar("Key", bound=Hashable)


class Times(NamedTuple):
    """Nanoseconds per call, one entry per round (NaN if the call skipped it), and the number of disturbed turns."""

    taken: NDArray[np.float64]
    disturbed: int


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


def race(
    calls: Mapping[Key, Call], *, threads: Sequence[int] = (1,), seconds: float
) -> dict[tuple[int, Key], Times]:
    """Time the calls in turns, each for about `seconds`, on each number of threads.

    The first call takes part in every round, and every call in the first round; slow calls skip rounds.
    """
    first = next(iter(calls))
    with _quiet():
        costs = {(count, key): _cost(calls[key], count) for count in threads for key in calls}
        turns = {lane: _turns(cost, seconds) for lane, cost in costs.items()}
        rounds = max(turns[count, first] for count in threads)
        taken = {lane: np.full(rounds, np.nan) for lane in costs}
        disturbed = dict.fromkeys(costs, 0)
        shuffle = random.Random(0).sample
        end = time.monotonic() + _PATIENCE * seconds * len(costs)
        for number in range(rounds):
            if number and time.monotonic() > end:
                break
            for count in threads:
                torch.set_num_threads(count)
                # A new order each round, so that no call always runs after the same other call.
                for key in shuffle(list(calls), len(calls)):
                    lane = count, key
                    if key == first or _is_due(number, turns[lane], rounds):
                        taken[lane][number], was_disturbed = _turn(calls[key], costs[lane])
                        disturbed[lane] += was_disturbed
    return {lane: Times(taken[lane], disturbed[lane]) for lane in costs}


@contextmanager
def _quiet() -> Iterator[None]:
    """Without garbage collection, and with the allocator in the state of a long-running process."""
    before, was_enabled = torch.get_num_threads(), gc.isenabled()
    gc.disable()
    # glibc keeps freed blocks instead of mapping new pages, up to a size that grows with the blocks freed so far.
    # After this block the size no longer changes, so no time depends on the contestants that ran before.
    torch.empty(_ALLOCATION, dtype=torch.uint8)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        if was_enabled:
            gc.enable()


def _cost(call: Call, threads: int) -> float:
    """Approximate nanoseconds of one call, after a warm-up."""
    torch.set_num_threads(threads)
    call.run()
    return min(_time(call, 1) for _ in range(3))


def _turns(cost: float, seconds: float) -> int:
    """The number of turns of a call; a turn is one untimed call and a batch of timed ones."""
    one_turn = cost * (1 + _batch(cost))
    return int(np.clip(seconds * 1e9 / one_turn, FEWEST, MOST))


def _batch(cost: float) -> int:
    return max(1, math.ceil(SHORTEST / cost))


def _is_due(number: int, turns: int, rounds: int) -> bool:
    """Whether a call with fewer turns than rounds takes part in this round; its turns are spread evenly.

    Example:
        >>> [_is_due(number, 3, 7) for number in range(7)].count(True)
        3
    """
    return turns >= rounds or number * turns // rounds != (number - 1) * turns // rounds


def _turn(call: Call, cost: float) -> tuple[float, bool]:
    """Nanoseconds per call, and whether the turn was disturbed; a disturbed turn is repeated a few times."""
    for _ in range(_ATTEMPTS):
        # Untimed: brings the caches into the state that the call itself produces.
        call.run()
        before = _switches()
        nanoseconds = _time(call, _batch(cost))
        disturbed = _switches() != before
        if not disturbed:
            break
    return nanoseconds / call.share, disturbed


def _switches() -> int:
    """How often the operating system has preempted this process; 0 if it does not report this."""
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _time(call: Call, repeats: int) -> float:
    run, turns = call.run, range(repeats)
    start = time.perf_counter_ns()
    for _ in turns:
        run()
    return (time.perf_counter_ns() - start) / repeats
