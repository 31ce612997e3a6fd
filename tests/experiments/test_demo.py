"""The demo trains the mappings, prints the tables, writes the report, and repeats no finished work."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from regmax.cli import main
from regmax.experiments import demo
from regmax.experiments.errors import ExperimentError
from regmax.experiments.training import runs

Captured = pytest.CaptureFixture[str]
SMALL = {
    "generated": 40,
    "epochs": 2,
    "words": 8,
    "hidden": 8,
    "decode_dev": False,
    "tensorboard": False,
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_FIELDS", SMALL)
    monkeypatch.setattr(demo, "_STEPS", 3)
    monkeypatch.setattr(demo, "MAPPINGS", ("softmax", "fusedmax"))


@pytest.mark.usefixtures("small")
def test_the_demo_trains_tabulates_reports_and_keeps_what_is_finished(
    tmp_path: Path, capsys: Captured
) -> None:
    report = demo.run(tmp_path)
    assert report == tmp_path / "report.html"
    text = capsys.readouterr().out
    assert "translation fusedmax seed 0 epoch 2: dev loss" in text
    assert "BLEU" in text
    assert f"The runs are in {tmp_path};" in text
    measured = json.loads((tmp_path / demo.SPEED).read_text())
    assert measured["softmax"] == 1
    assert measured["fusedmax"] > 0.1
    page = report.read_text(encoding="utf-8")
    assert f">{measured['fusedmax']:.2f}</text>" in page
    assert page.count("<polyline") == 6  # two losses and the accuracy, of two mappings
    assert '"fusedmax, λ = 0.1"' in page
    files = [*tmp_path.rglob(runs.RESULT), tmp_path / demo.SPEED]
    assert len(files) == 3
    times = [file.stat().st_mtime_ns for file in files]
    demo.run(tmp_path)
    assert [file.stat().st_mtime_ns for file in files] == times
    assert "epoch" not in capsys.readouterr().out


@pytest.mark.usefixtures("small")
def test_the_demo_leaves_other_runs_alone(tmp_path: Path) -> None:
    folder = tmp_path / "translation-softmax"
    runs.create(demo.make("translation", "small", {"mapping": "softmax", "seed": 9}), folder)
    with pytest.raises(ExperimentError, match="holds another run"):
        demo.run(tmp_path)


@pytest.mark.usefixtures("small")
def test_the_demo_says_why_a_run_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "MAPPINGS", ("softmax",))
    folder = tmp_path / "translation-softmax"
    runs.create(demo.configuration("softmax"), folder)
    (folder / runs.LAST).write_text("not a checkpoint")
    with pytest.raises(ExperimentError, match=r"translation-softmax failed: .*last.safetensors is damaged"):
        demo.run(tmp_path)


def test_an_interrupted_demo_stops_its_runs_and_goes_on_when_called_again(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields, command = SMALL | {"epochs": 25, "save_every": 1}, ["demo", "--out", str(tmp_path)]
    code = (
        "import signal, sys; from regmax.cli import main; from regmax.experiments import demo\n"
        # A process started in the background by a shell ignores Ctrl-C, and its children inherit this.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"demo._FIELDS, demo._STEPS, demo.MAPPINGS = {fields}, 3, ('softmax',)\n"
        f"sys.exit(main({command}))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    while "epoch 2" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors == "regmax demo: interrupted; run the same command again to continue.\n"
    folder = tmp_path / "translation-softmax"
    reached = (folder / runs.LAST).stat().st_mtime_ns
    time.sleep(0.5)
    assert (folder / runs.LAST).stat().st_mtime_ns == reached  # no process is still running
    assert not (folder / runs.RESULT).exists()
    for name, value in {"_FIELDS": fields, "_STEPS": 3, "MAPPINGS": ("softmax",)}.items():
        monkeypatch.setattr(demo, name, value)
    assert main(command) == 0  # here, where everything is imported
    again = capsys.readouterr().out
    assert again.splitlines()[-1] == str(tmp_path / "report.html")
    assert "epoch 1:" not in again
    assert "epoch 25:" in again
