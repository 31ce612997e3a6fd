"""Timing in turns: other load on the machine affects every call equally, so the ratios remain valid.

`race` repeats calls without side effects for a given time. `in_turns` makes each call once per round, for calls with
side effects, such as training steps.
"""

import gc
import math
import random
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

SHORTEST = 200_000  # ns: a shorter timing would measure the clock
FEWEST, MOST = 5, 300  # turns
_ATTEMPTS = 3  # at a turn; after that a disturbed turn counts too
_PATIENCE = 3  # no further rounds if a race takes this many times longer than planned
_ALLOCATION = 31 * 2**20  # bytes: just below the size from which glibc always maps fresh pages

# Nanoseconds. The CPU time of one thread hardly depends on other load; it suits calls that use this thread only.
WALL, CPU = time.perf_counter_ns, time.thread_time_ns

Clock = Callable[[], int]
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Call:
    """A timed call; `share` is the fraction of the work that it does."""

    run: Callable[[], object]
    share: float = 1.0


class Times(NamedTuple):
    """Nanoseconds per call, one entry per round (NaN if the call skipped it), and the number of disturbed turns."""

    taken: NDArray[np.float64]
    disturbed: int


def race(
    calls: Mapping[Key, Call], *, threads: Sequence[int] = (1,), seconds: float, clock: Clock = WALL
) -> dict[tuple[int, Key], Times]:
    """Time the calls in turns, each for about `seconds`, on each number of threads.

    The first call takes part in every round, and every call in the first round; slow calls skip rounds.
    """
    first = next(iter(calls))
    with _quiet():
        costs = {(count, key): _cost(calls[key], count, clock) for count in threads for key in calls}
        turns = {lane: _turns(cost, seconds) for lane, cost in costs.items()}
        rounds = max(turns[count, first] for count in threads)
        taken = {lane: np.full(rounds, np.nan) for lane in costs}
        disturbed = dict.fromkeys(costs, 0)
        shuffle = random.Random(0).sample
        end = clock() + 1e9 * _PATIENCE * seconds * len(costs)
        for number in range(rounds):
            if number and clock() > end:
                break
            for count in threads:
                torch.set_num_threads(count)
                # A new order each round, so that no call always runs after the same other call.
                for key in shuffle(list(calls), len(calls)):
                    lane = count, key
                    if key == first or _is_due(number, turns[lane], rounds):
                        taken[lane][number], was_disturbed = _turn(calls[key], costs[lane], clock)
                        disturbed[lane] += was_disturbed
    return {lane: Times(taken[lane], disturbed[lane]) for lane in costs}


def in_turns(
    calls: Mapping[Key, Callable[[], object]], *, rounds: int, warm_up: int = 1, clock: Clock = WALL
) -> dict[Key, NDArray[np.float64]]:
    """Nanoseconds of each call, one entry per round: every call is made once per round, in a new order each time.

    `warm_up` rounds before the first are not counted.

    Example:
        >>> made = []
        >>> times = in_turns({"a": lambda: made.append("a"), "b": lambda: made.append("b")}, rounds=4)
        >>> times["a"].shape, made.count("a"), made.count("b")
        ((4,), 5, 5)
    """
    taken = {key: np.empty(warm_up + rounds) for key in calls}
    shuffle = random.Random(0).sample
    with _quiet():
        for number in range(warm_up + rounds):
            for key in shuffle(list(calls), len(calls)):
                taken[key][number] = _time(calls[key], 1, clock)
    return {key: own[warm_up:] for key, own in taken.items()}


@contextmanager
def _quiet() -> Iterator[None]:
    """Without garbage collection, and with the allocator in the state of a long-running process."""
    before, was_enabled = torch.get_num_threads(), gc.isenabled()
    gc.collect()
    gc.disable()
    # glibc keeps freed blocks for reuse up to a size limit, and raises the limit when it frees a larger block. Freeing
    # this block raises it almost to its maximum, so that no call's time depends on the calls before it.
    torch.empty(_ALLOCATION, dtype=torch.uint8)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        if was_enabled:
            gc.enable()


def _cost(call: Call, threads: int, clock: Clock) -> float:
    """Nanoseconds of one call, roughly, after a warm-up."""
    torch.set_num_threads(threads)
    call.run()
    return min(_time(call.run, 1, clock) for _ in range(3))


def _turns(cost: float, seconds: float) -> int:
    """The number of turns of a call; a turn is one untimed call and a batch of timed ones."""
    one_turn = cost * (1 + _batch(cost))
    return int(np.clip(seconds * 1e9 / one_turn, FEWEST, MOST))


def _batch(cost: float) -> int:
    return max(1, math.ceil(SHORTEST / max(cost, 1.0)))


def _is_due(number: int, turns: int, rounds: int) -> bool:
    """Whether a call with fewer turns than rounds takes part in this one: its turns are spread evenly.

    Example:
        >>> [_is_due(number, 3, 7) for number in range(7)].count(True)
        3
    """
    return turns >= rounds or number * turns // rounds != (number - 1) * turns // rounds


def _turn(call: Call, cost: float, clock: Clock) -> tuple[float, bool]:
    """Nanoseconds per call, and whether the turn was disturbed; a disturbed turn is repeated (not in CPU time)."""
    for _ in range(_ATTEMPTS):
        # Untimed: it warms the caches.
        call.run()
        before = _switches()
        nanoseconds = _time(call.run, _batch(cost), clock)
        disturbed = clock is WALL and _switches() != before
        if not disturbed:
            break
    return nanoseconds / call.share, disturbed


def _switches() -> int:
    """The number of involuntary context switches of this process; 0 on systems that do not report it."""
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _time(run: Callable[[], object], repeats: int, clock: Clock) -> float:
    turns = range(repeats)
    start = clock()
    for _ in turns:
        run()
    return (clock() - start) / repeats
