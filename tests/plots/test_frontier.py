"""The frontier: a point per configuration, seeds averaged; a panel per task and test set."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regmax.cli import main
from regmax.plots import frontier

Make = Callable[..., Path]


@pytest.fixture
def run(tmp_path: Path) -> Make:
    """Make the folder of a finished run."""

    def make(mapping: str, score: float, length: float, data: str = "test", **config: Any) -> Path:
        folder = tmp_path / "runs" / f"{mapping}-{score}-{length}"
        folder.mkdir(parents=True)
        result = {"task": "translation", "data": [data], "config": {"mapping": mapping, **config}}
        result |= {"scores": {"BLEU": score, "loss": 2.0}, "attention": {"segment length": length}}
        (folder / "result.json").write_text(json.dumps(result))
        return folder

    return make


def test_a_line_joins_the_strengths_of_a_mapping_and_seeds_are_averaged(run: Make) -> None:
    folders = [
        run("fusedmax", 30.0, 2.0, lam=1.0, grow_end=0.7),
        run("softmax", 35.0, 1.0, lam=0.0),
        run("fusedmax", 34.0, 1.1, lam=0.1),
        run("fusedmax", 35.0, 1.3, lam=0.1, seed=1),
    ]
    (ax,) = frontier(folders).axes
    softmax, fusedmax = ax.lines
    np.testing.assert_allclose(softmax.get_xydata(), [[1.0, 35.0]])
    np.testing.assert_allclose(fusedmax.get_xydata(), [[1.2, 34.5], [2.0, 30.0]])
    assert [text.get_text() for text in ax.texts] == ["0.1", "1 (grown)"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["softmax", "fusedmax, by λ"]
    (ax,) = frontier(folders, score="loss").axes
    assert ax.get_ylabel() == "loss"


def test_a_bar_is_the_deviation_of_the_seeds(run: Make) -> None:
    folders = [run("fusedmax", score, 1.5, lam=1.0, seed=seed) for seed, score in enumerate((34.0, 36.0))]
    (ax,) = frontier([*folders, run("softmax", 35.0, 1.0)]).axes
    bars = [bar.get_segments()[0] for bar in ax.collections]
    np.testing.assert_allclose(bars, [[[1.0, 35.0]] * 2, [[1.5, 35.0 - 2**0.5], [1.5, 35.0 + 2**0.5]]])


def test_runs_on_different_data_have_their_own_panels(run: Make) -> None:
    folders = [run("softmax", 35.0, 1.0), run("fusedmax", 34.0, 1.2, data="other", lam=1.0)]
    figure = frontier(folders)
    assert [ax.get_title() for ax in figure.axes] == ["translation, test", "translation, other"]
    assert [len(ax.lines) for ax in figure.axes] == [1, 1]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["softmax", "fusedmax, by λ"]
    with pytest.raises(ValueError, match="with `ax` runs of one task on the same data"):
        frontier(folders, ax=figure.axes[0])
    with pytest.raises(ValueError, match="needs runs"):
        frontier([])


def test_the_command_finds_results_below_a_folder(
    run: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    above = run("softmax", 35.0, 1.0).parent
    out = tmp_path / "figures"
    assert main(["plot", "frontier", str(above), "--out", str(out), "--format", "svg"]) == 0
    assert capsys.readouterr().out == f"{out / 'frontier.svg'}\n"
    assert main(["plot", "frontier", str(out), "--out", str(out)]) == 2
    assert "needs runs: no folder holds a result.json" in capsys.readouterr().err


def test_a_single_strength_is_named_too(run: Make) -> None:
    (ax,) = frontier([run("softmax", 35.0, 1.0, lam=0.0), run("fusedmax", 34.0, 1.7, lam=1.0)]).axes
    assert [text.get_text() for text in ax.texts] == ["1"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["softmax", "fusedmax, by λ"]
