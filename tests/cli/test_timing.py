"""Timing: in turns, with no effect on the process, and each call as often as it was asked for."""

from __future__ import annotations

import gc
import math
import time
from itertools import pairwise

import numpy as np
import pytest
import torch

from regmax import timing
from regmax.timing import Call


def test_calls_take_turns_and_slow_ones_sit_rounds_out(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    calls = {name: Call(lambda name=name: order.append(name)) for name in ("first", "slow")}  # type: ignore[misc]
    nanoseconds = {calls["first"].run: 1e3, calls["slow"].run: 5e6}
    monkeypatch.setattr(timing, "_time", lambda run, repeats, clock: nanoseconds[run])
    monkeypatch.setattr(timing, "_PATIENCE", math.inf)
    times = timing.race(calls, seconds=0.02)
    first, slow = times[1, "first"].taken, times[1, "slow"].taken
    assert not np.isnan(first).any()
    assert np.isnan(slow).any()
    assert (~np.isnan(slow)).sum() == timing.FEWEST
    # Neither had all its turns in one piece.
    assert sum(a != b for a, b in pairwise(order)) > timing.FEWEST


def test_a_race_that_takes_too_long_ends_after_its_first_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_PATIENCE", 0)
    calls = {name: Call(lambda: None) for name in ("first", "second")}
    times = timing.race(calls, seconds=0.01)
    assert [(~np.isnan(own.taken)).sum() for own in times.values()] == [1, 1]


def test_a_sample_counts_for_all_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_time", lambda run, repeats, clock: 1000.0)
    monkeypatch.setattr(timing, "_PATIENCE", math.inf)
    calls = {"whole": Call(lambda: None), "part": Call(lambda: None, share=0.125)}
    times = timing.race(calls, seconds=0.001)
    assert (times[1, "part"].taken / times[1, "whole"].taken == 8).all()


def test_timing_leaves_threads_and_garbage_collection_as_they_were() -> None:
    before = torch.get_num_threads()
    seen: set[tuple[int, bool]] = set()
    call = Call(lambda: seen.add((torch.get_num_threads(), gc.isenabled())))
    timing.race({"call": call}, threads=(1, 2), seconds=0.001)
    assert seen == {(1, False), (2, False)}
    assert (torch.get_num_threads(), gc.isenabled()) == (before, True)


def test_every_call_is_made_once_a_round_in_changing_orders() -> None:
    order: list[str] = []
    calls = {name: lambda name=name: order.append(name) for name in "abc"}  # type: ignore[misc]
    times = timing.in_turns(calls, rounds=20, warm_up=2)
    assert {name: own.shape for name, own in times.items()} == dict.fromkeys("abc", (20,))
    assert all((own > 0).all() for own in times.values())
    rounds = [order[i : i + 3] for i in range(0, len(order), 3)]
    assert len(rounds) == 22
    assert all(sorted(made) == ["a", "b", "c"] for made in rounds)
    assert len({made[0] for made in rounds}) == 3


def test_warm_up_rounds_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(100))
    monkeypatch.setattr(timing, "_time", lambda run, repeats, clock: float(next(times)))
    assert timing.in_turns({"call": lambda: None}, rounds=3, warm_up=2)["call"].tolist() == [2.0, 3.0, 4.0]


def test_cpu_time_does_not_count_waiting_and_no_turn_is_disturbed() -> None:
    calls = {name: Call(lambda: time.sleep(0.002)) for name in ("first", "second")}
    for own in timing.race(calls, seconds=1e-4, clock=timing.CPU).values():
        assert own.disturbed == 0
        assert np.nanmax(own.taken) < 2e6
    waited = timing.in_turns({"call": lambda: time.sleep(0.002)}, rounds=3)["call"]
    worked = timing.in_turns({"call": lambda: time.sleep(0.002)}, rounds=3, clock=timing.CPU)["call"]
    assert (waited > 2e6).all()
    assert (worked < 2e6).all()
