"""A run that is stopped at any moment and resumed ends with the same bits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import ALONE, options, same_bits, start, tensors, tiny

from regmax.cli import main
from regmax.experiments import run
from regmax.experiments.errors import ExperimentError
from regmax.experiments.training import checkpoints, runs
from regmax.experiments.training.loop import Trainer

TIMES = ("seconds", "words per second")


class StopError(Exception):
    """Simulates the end of the process."""


def history(folder: Path) -> list[dict[str, float]]:
    records = json.loads((folder / runs.HISTORY).read_text())
    return [{name: value for name, value in record.items() if name not in TIMES} for record in records]


def stop_before(trainer: Trainer, step: int) -> None:
    """Make the trainer fail before a step."""
    original = trainer._step

    def step_or_stop(rows: list[int]) -> float:
        if trainer.state.step == step:
            raise StopError
        return original(rows)

    trainer._step = step_or_stop  # type: ignore[method-assign]


def test_a_run_without_a_checkpoint_says_that_it_starts_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.create(tiny(), tmp_path / "run")
    (tmp_path / "run" / ".last.safetensors.tmp").write_bytes(b"of a kill")
    run.resume(tmp_path / "run", {})
    said = f"{tmp_path / 'run'} has no last.safetensors yet: training starts from the beginning.\n"
    assert said in capsys.readouterr().err
    assert not list((tmp_path / "run").glob(".*"))
    run.resume(tmp_path / "run", {})
    assert "starts from the beginning" not in capsys.readouterr().err
    (tmp_path / "run" / runs.LAST).unlink()
    before = (tmp_path / "run" / runs.BEST).read_bytes()
    with pytest.raises(
        ExperimentError, match=r"cannot be resumed: it has a best.safetensors but no last.safetensors"
    ):
        run.resume(tmp_path / "run", {})
    assert (tmp_path / "run" / runs.BEST).read_bytes() == before


@pytest.mark.parametrize(
    ("task", "changes"),
    [
        ("translation", {"grow_end": 0.0}),
        ("translation", {"lam": 1.0, "grow_begin": 0.2, "grow_end": 0.9}),
        ("entailment", {}),
        ("summarization", {}),
    ],
)
def test_stopping_before_any_step_changes_nothing(
    task: str, changes: dict[str, float], tmp_path: Path
) -> None:
    config = tiny(task, **changes)
    whole = start(config, tmp_path / "whole")
    whole.run()
    assert whole.state.step == whole.steps == 6
    for step in range(whole.steps):
        folder = tmp_path / str(step)
        trainer = start(config, folder)
        stop_before(trainer, step)
        with pytest.raises(StopError):
            trainer.run()
        Trainer(config, folder, ALONE).run()
        assert same_bits(folder, tmp_path / "whole")
        assert history(folder) == history(tmp_path / "whole")


def test_killed_processes_resume_bit_for_bit(tmp_path: Path) -> None:
    config = tiny(generated=400, save_every=3)
    command = ["train", "translation", *options(config)]
    assert main([*command, "--out", str(tmp_path / "whole")]) == 0
    process = launch(command, tmp_path / "killed")
    wait_for(tmp_path / "killed" / runs.LAST, process)
    kill(process)
    process = launch([*command, "--resume"], tmp_path / "killed")
    time.sleep(3)  # at an arbitrary moment: while it reads, trains or writes
    kill(process)
    assert main([*command, "--resume", "--out", str(tmp_path / "killed")]) == 0
    assert same_bits(tmp_path / "killed", tmp_path / "whole")
    for name in ("scores", "attention"):
        one, other = (runs.read_result(tmp_path / which)[name] for which in ("killed", "whole"))
        assert one == other


def launch(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    code = "import sys; from regmax.cli import main; sys.exit(main(sys.argv[1:]))"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", code, *command, "--out", str(folder)],
        env=environment,
        stdout=subprocess.DEVNULL,
    )


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    while not path.exists():
        assert process.poll() is None, "the run ended before its first checkpoint"
        time.sleep(0.01)


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_a_crash_while_writing_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.safetensors"
    checkpoints.write(path, {"model.a": torch.ones(3)}, {"step": 1})

    def crash(*_: Any) -> None:
        raise StopError

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(StopError):
        checkpoints.write(path, {"model.a": torch.zeros(3)}, {"step": 2})
    found, state = checkpoints.read(path)
    assert state == {"step": 1}
    assert found["model.a"].tolist() == [1, 1, 1]


def test_a_finished_run_is_only_tested_again(tmp_path: Path) -> None:
    config = tiny()
    first = run.train(config, tmp_path / "run")
    before = tensors(tmp_path / "run")
    again = run.resume(tmp_path / "run", {})
    assert first is not None
    assert again is not None
    assert first["scores"] == again["scores"]
    assert all(torch.equal(before[name], tensor) for name, tensor in tensors(tmp_path / "run").items())


def test_a_new_run_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ExperimentError, match=r"is not empty: `--resume` continues its run"):
        run.train(tiny(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_resuming_needs_a_run(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"holds no run to resume: config.json is missing"):
        run.resume(tmp_path, {})


def test_resuming_refuses_another_configuration(tmp_path: Path) -> None:
    start(tiny(), tmp_path / "run")
    with pytest.raises(ExperimentError, match=r"has mapping='fusedmax'. Got 'softmax'"):
        run.resume(tmp_path / "run", {"mapping": "softmax"})


def test_a_run_of_an_older_default_is_resumed_with_its_own_lam(tmp_path: Path) -> None:
    config = tiny(lam=0.1, grow_end=0.0)
    start(config, tmp_path / "whole").run()
    trainer = start(config, tmp_path / "run")
    stop_before(trainer, 3)
    with pytest.raises(StopError):
        trainer.run()
    command = ["train", "translation", "--mapping", "fusedmax", "--resume"]
    assert main([*command, "--out", str(tmp_path / "run")]) == 0
    assert same_bits(tmp_path / "run", tmp_path / "whole")


def test_resuming_refuses_other_data(tmp_path: Path) -> None:
    trainer = start(tiny(), tmp_path / "run")
    trainer.run()
    with pytest.raises(ExperimentError, match="was trained on other data"):
        Trainer(tiny(generated=39), tmp_path / "run", ALONE)


def test_resuming_refuses_another_number_of_processes(tmp_path: Path) -> None:
    start(tiny(), tmp_path / "run").run()
    found, state = checkpoints.read(tmp_path / "run" / runs.LAST)
    checkpoints.write(tmp_path / "run" / runs.LAST, found, {**state, "processes": 2})
    with pytest.raises(ExperimentError, match=r"comes from 2 process\(es\). Got 1"):
        Trainer(tiny(), tmp_path / "run", ALONE)


def test_resuming_refuses_another_model(tmp_path: Path) -> None:
    start(tiny(), tmp_path / "run").run()
    with pytest.raises(ExperimentError, match="belongs to another model"):
        Trainer(tiny(hidden=6), tmp_path / "run", ALONE)


def test_early_stopping_waits_for_the_end_of_annealing(tmp_path: Path) -> None:
    trainer = start(tiny(epochs=10, patience=1, rate=1e-9, dropout=0.0), tmp_path / "run")
    trainer.run()
    # gamma is final after 7 of 10 epochs; the first score after that is the best, and the second is no better.
    assert trainer.state.step == 8 * trainer.steps_per_epoch


def test_the_best_model_has_the_final_lam(tmp_path: Path) -> None:
    trainer = start(tiny(epochs=5, lam=0.8, anneal_end=0.2, grow_begin=0.2, grow_end=0.6), tmp_path / "run")
    seen, judge = [], trainer._judge
    trainer._judge = lambda score: (seen.append(trainer.growth.factor), judge(score))  # type: ignore
    trainer.run()
    assert seen == [0.0, 0.5, 1.0, 1.0, 1.0]
    _, best = checkpoints.read(tmp_path / "run" / runs.BEST)
    assert best["step"] >= 3 * trainer.steps_per_epoch


def test_a_loss_that_is_not_a_number_ends_the_run(tmp_path: Path) -> None:
    trainer = start(tiny(), tmp_path / "run")
    with torch.no_grad():
        next(trainer.task.model.parameters()).fill_(float("nan"))
    with pytest.raises(ExperimentError, match=r"The loss is nan at step 0: try a smaller `rate`"):
        trainer.run()
