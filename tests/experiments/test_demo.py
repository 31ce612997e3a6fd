"""The demo trains what it is told to, prints the tables, and does not train twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regmax.experiments import demo
from regmax.experiments.errors import ExperimentError
from regmax.experiments.training import runs


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {
        "generated": 40,
        "epochs": 1,
        "words": 8,
        "hidden": 8,
        "decode_dev": False,
        "tensorboard": False,
    }
    monkeypatch.setattr(demo, "_FIELDS", fields)
    monkeypatch.setattr(demo, "_STEPS", 3)


@pytest.mark.usefixtures("small")
def test_the_demo_trains_prints_the_tables_and_keeps_finished_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "MAPPINGS", ("softmax", "fusedmax"))
    said: list[str] = []
    folders = demo.run(tmp_path, said.append)
    assert folders == [tmp_path / "translation-softmax", tmp_path / "translation-fusedmax"]
    assert all((folder / runs.RESULT).exists() for folder in folders)
    text = "\n".join(said)
    assert "BLEU" in text
    assert text.endswith(f"The runs are in {tmp_path}.")
    measured = json.loads((tmp_path / demo.SPEED).read_text())
    assert measured["softmax"] == 1
    assert measured["fusedmax"] > 0.1
    assert all(str(folder) in text for folder in folders)
    times = [(folder / runs.RESULT).stat().st_mtime_ns for folder in folders]
    demo.run(tmp_path, said.append)
    assert [(folder / runs.RESULT).stat().st_mtime_ns for folder in folders] == times


@pytest.mark.usefixtures("small")
def test_the_demo_leaves_other_runs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "MAPPINGS", ("softmax",))
    folder = tmp_path / "translation-softmax"
    runs.create(demo.make("translation", "small", {"mapping": "softmax", "seed": 9}), folder)
    with pytest.raises(ExperimentError, match="holds another run"):
        demo.run(tmp_path, lambda _: None)


@pytest.mark.usefixtures("small")
def test_the_demo_says_why_a_run_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "MAPPINGS", ("softmax",))
    folder = tmp_path / "translation-softmax"
    runs.create(demo.configuration("softmax"), folder)
    (folder / runs.LAST).write_text("not a checkpoint")
    with pytest.raises(ExperimentError, match=r"Training softmax failed: .*last.safetensors is damaged"):
        demo.run(tmp_path, lambda _: None)
