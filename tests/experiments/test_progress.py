"""What a run tells while it works."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from regmax.experiments.training import progress
from regmax.experiments.training.progress import Evaluation, Reporter

Captured = pytest.CaptureFixture[str]


class Clock:
    """Time that passes when the test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_log_has_a_line_a_minute(capsys: Captured) -> None:
    clock = Clock()
    with Reporter("task", 1000, folder=None, start=0, quiet=False, clock=clock) as reporter:
        for step in range(1, 181):
            clock.now = step
            if reporter.due(step):
                reporter.step(step, 2.5, 1234.0)
    assert capsys.readouterr().out.splitlines() == [
        f"task step {step}/1000: loss 2.500 · 1,234 words/s · {left} min left"
        for step, left in ((60, 16), (120, 15), (180, 14))
    ]


def test_slow_steps_are_shown_although_they_are_not_the_tenth(capsys: Captured) -> None:
    clock = Clock()
    with Reporter("task", 9, folder=None, start=0, quiet=False, clock=clock) as reporter:
        for step in (1, 2, 3):
            clock.now += 61
            assert reporter.due(step)
            reporter.step(step, 2.5, 10.0)
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_evaluations_during_training_are_shown_too(capsys: Captured) -> None:
    clock = Clock()
    with Reporter("task", 9, folder=None, start=0, quiet=False, clock=clock) as reporter:
        for _ in reporter.watch(range(4), "decodes"):
            clock.now += 30
    assert capsys.readouterr().out == "task: decodes 2/4\n"


def test_an_evaluation_says_at_once_that_it_works_and_then_once_a_minute(capsys: Captured) -> None:
    clock = Clock()
    with Evaluation("evaluates runs/one", clock=clock) as evaluation:
        for _ in evaluation.watch(range(5), "decodes"):
            clock.now += 25
    printed = capsys.readouterr()
    assert printed.out == ""  # standard output is for the result
    assert printed.err.splitlines() == ["evaluates runs/one ...", "evaluates runs/one: decodes 3/5"]


def test_the_bar_shows_no_numbers_before_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()

    def console(**options: object) -> Console:
        return Console(file=terminal, force_terminal=True, width=100)

    monkeypatch.setattr(progress, "Console", console)
    with Reporter("task", 9, folder=None, start=0, quiet=False) as reporter:
        reporter._bar.refresh()
        before = terminal.getvalue()
        assert reporter.due(1)
        reporter.step(1, 2.5, 10.0)
        reporter._bar.refresh()
    assert "task begins" in before
    assert "nan" not in terminal.getvalue()
    assert "loss 2.500 · 10 words/s" in terminal.getvalue()


def test_other_processes_say_nothing(capsys: Captured, tmp_path: Path) -> None:
    clock = Clock()
    with Reporter("task", 9, folder=tmp_path, start=0, quiet=True, clock=clock) as reporter:
        clock.now = 100
        reporter.step(1, 2.5, 10.0)
        reporter.epoch(1, 1, {"dev loss": 2.0})
    assert capsys.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())
