"""`regmax evaluate` measures the model's own output, complains of wrong files, and writes what tables read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import tiny

from regmax.cli import main
from regmax.experiments import run, tasks
from regmax.experiments.data.vocabulary import END
from regmax.experiments.errors import ExperimentError
from regmax.experiments.metrics.attention import AttentionStatistics
from regmax.experiments.metrics.overlap import complaint
from regmax.experiments.tables import find_runs, tables
from regmax.experiments.tasks.seq2seq import Seq2SeqTask

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "one"
    run.train(tiny("translation"), folder)
    return folder


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """A test set of a few sentences."""
    for name, lines in (
        ("flickr.en", ["the dog sees a cat"] * 25),
        ("flickr.de", ["der hund sieht eine katze"] * 25),
    ):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return [str(tmp_path / "flickr.en"), str(tmp_path / "flickr.de")]


def test_the_attentions_shape_is_that_of_the_models_output() -> None:
    task = tasks.build(tiny("translation"), torch.device("cpu"))
    assert isinstance(task, Seq2SeqTask)
    result = task.test()
    assert result.attention_on == "the model's output"
    statistics = AttentionStatistics()
    for hypothesis in task._decode(task.test_pairs, task.config.beam):
        words = [word for word in hypothesis.words if word != END]
        statistics.add(hypothesis.y[: len(words)].numpy())
    expected = statistics.means()
    assert {name: result.attention[name] for name in expected} == pytest.approx(expected)
    assert {"precision", "recall", "mass"} <= set(
        result.attention
    )  # of the reference, whose alignment is known


def test_a_model_that_writes_nothing_has_no_statistics() -> None:
    statistics = AttentionStatistics()
    statistics.add(np.zeros((0, 3)))
    assert statistics.means() == {}


def test_an_evaluation_shows_progress_units_and_is_read_by_the_table(
    trained: Path, files: list[str], capsys: Captured
) -> None:
    before = {path: path.read_bytes() for path in trained.iterdir() if path.is_file()}
    assert main(["evaluate", str(trained), "--test", *files]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith(f"evaluating {trained} on {' '.join(files)} ...\n")
    lines = printed.out.splitlines()
    assert lines[0].startswith("BLEU ")
    assert lines[0].endswith(" of 100")
    assert "attention on the model's output" in lines
    assert any(line.startswith("support") and line.endswith(" words") for line in lines)
    folder = Path(lines[-1])
    assert folder.parent == trained / "evaluations"
    assert {path: path.read_bytes() for path in trained.iterdir() if path.is_file()} == before
    titles = [table.title for table in tables(find_runs([trained]), ["scores"])]
    assert titles == ["translation, flickr, en to de", "translation, generated"]
    assert main(["explore", "--run", str(folder), "--out", str(folder / "page.html")]) == 0


def test_an_evaluation_on_the_runs_own_test_set_is_not_a_second_run(trained: Path, capsys: Captured) -> None:
    assert main(["evaluate", str(trained), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["scores"] == json.loads((trained / "result.json").read_text())["scores"]
    assert main(["evaluate", str(trained), "--beam", "1", "--json"]) == 0
    (scores,) = [t for t in tables(find_runs([trained]), ["scores"]) if t.title == "translation, generated"]
    assert [name for name, _ in scores.rows] == ["fusedmax, beam=1", "fusedmax, beam=2"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--out", "{run}"], "holds a run whose result would be overwritten: choose another `--out`"),
        (["--beam", "0"], "argument --beam: must be a positive integer. Got 0"),
        (["--test", "{run}/outputs.txt", "{run}/config.json"], "must have the same number of lines"),
        (["--test", "nowhere.en", "nowhere.de"], "No such file or directory: 'nowhere.en'"),
    ],
)
def test_a_wrong_evaluation_is_refused(
    options: list[str], message: str, trained: Path, capsys: Captured
) -> None:
    try:
        code = main(["evaluate", str(trained), *(option.format(run=trained) for option in options)])
    except SystemExit as stop:
        code = int(stop.code or 0)
    assert code == 2
    assert message in capsys.readouterr().err


def test_options_that_a_task_does_not_have_are_refused(tmp_path: Path) -> None:
    run.train(tiny("entailment"), tmp_path / "run")
    with pytest.raises(ExperimentError, match="`--beam` has no meaning for entailment"):
        run.evaluate(tmp_path / "run", beam=3)


def test_references_of_other_sentences_are_complained_of(
    trained: Path, files: list[str], capsys: Captured
) -> None:
    texts = [tuple(f"w{i * j % 97}" for j in range(2, 9)) for i in range(1, 60)]
    right = [[text] for text in texts]
    assert complaint(texts, right) == ""
    assert complaint([text[:4] for text in texts], right) == ""  # poor, but of these sentences
    shifted = right[1:] + right[:1]
    assert "do these references belong to these sources?" in complaint(texts, shifted)
    assert "share 0 % of their words" in complaint(texts, [[("andere", "sprache")]] * len(texts))
    assert complaint(texts[:5], shifted[:5]) == ""  # too few to tell
    Path(files[1]).write_text("quite another language\n" * 25)
    assert main(["evaluate", str(trained), "--test", *files]) == 0
    assert "regmax evaluate: warning: the outputs share 0 % of their words" in capsys.readouterr().err
