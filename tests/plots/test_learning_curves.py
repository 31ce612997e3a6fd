"""Learning curves: one line per run, dashed without annealing; runs that cannot be compared are rejected."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regmax.cli import main
from regmax.plots import learning_curves

Make = Callable[..., Path]


@pytest.fixture
def run(tmp_path: Path) -> Make:
    """Make the folder of a run that has finished some epochs."""

    def make(mapping: str, seed: int = 0, score: str = "dev BLEU", **config: Any) -> Path:
        folder = tmp_path / "runs" / f"{mapping}-{seed}-{len(config)}"
        folder.mkdir(parents=True)
        fields = {"task": "translation", "mapping": mapping, "seed": seed, "gamma": 1.0, "lam": 0.1, "p": 1.5}
        (folder / "config.json").write_text(json.dumps({**fields, "anneal_from": 4.0, **config}))
        history = [{"epoch": e, score: 10.0 * e + seed, "dev accuracy": 50.0 + e} for e in (1, 2, 3)]
        (folder / "history.json").write_text(json.dumps(history))
        return folder

    return make


def test_each_run_is_a_line_and_those_without_annealing_are_dashed(run: Make) -> None:
    folders = [
        run("softmax", anneal_from=0.0),
        run("fusedmax"),
        run("fusedmax", 1),
        run("fusedmax", anneal_from=0.0),
    ]
    (ax,) = learning_curves(folders).axes
    softmax, annealed, other_seed, fixed = ax.lines
    np.testing.assert_array_equal(annealed.get_xydata(), [[1, 10], [2, 20], [3, 30]])
    np.testing.assert_array_equal(other_seed.get_ydata(), [11, 21, 31])
    assert [line.is_dashed() for line in (softmax, annealed, other_seed, fixed)] == [
        False,
        False,
        False,
        True,
    ]
    assert annealed.get_color() == fixed.get_color() != softmax.get_color()
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["softmax", "fusedmax, λ = 0.1", "fusedmax, λ = 0.1, not annealed"]
    assert ax.get_ylabel() == "dev BLEU"


def test_runs_on_raw_scores_say_so(run: Make) -> None:
    folders = [run("sparsemax", scaled=False), run("sparsemax", scaled=False, anneal_from=0.0)]
    (ax,) = learning_curves(folders).axes
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["sparsemax, raw scores", "sparsemax, raw scores, not annealed"]


def test_the_score_is_one_that_all_runs_have_or_the_one_asked_for(run: Make) -> None:
    folders = [run("softmax"), run("fusedmax", score="dev loss")]
    (ax,) = learning_curves(folders).axes
    assert ax.get_ylabel() == "dev accuracy"
    (ax,) = learning_curves(folders[1:], score="dev loss").axes
    assert ax.get_ylabel() == "dev loss"
    with pytest.raises(ValueError, match="has no 'dev loss' in its history"):
        learning_curves(folders, score="dev loss")


def test_runs_on_different_data_are_not_compared(run: Make) -> None:
    with pytest.raises(ValueError, match="compares runs of one task on the same data"):
        learning_curves([run("softmax"), run("fusedmax", test=["other.en", "other.de"])])


def test_the_command_finds_runs_below_a_folder(
    run: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    above = run("softmax").parent
    run("sparsemax")
    out = tmp_path / "figures"
    assert main(["plot", "curves", str(above), "--out", str(out), "--format", "svg"]) == 0
    assert capsys.readouterr().out == f"{out / 'learning-curves.svg'}\n"
    assert main(["plot", "curves", str(out), "--out", str(out)]) == 2
    assert "needs runs: no folder holds a history.json" in capsys.readouterr().err
    assert main(["plot", "scores.json", str(above), "--out", str(out)]) == 2
    assert "several sources must be folders of runs. Got scores.json" in capsys.readouterr().err
