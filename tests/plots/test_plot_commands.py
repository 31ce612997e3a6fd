"""The commands `regmax plot` and `regmax explore`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from regmax.cli import main

Captured = pytest.CaptureFixture[str]
ONE = {"source": ["a", "b"], "target": ["c"], "scores": [[1, 0.5]]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "scores.json"
    path.write_text(json.dumps([ONE, ONE]))
    return path


def test_explore_writes_one_page_and_names_it(file: Path, tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "new" / "page.html"
    arguments = ["--json", str(file), "--out", str(out), "--title", "Mine & yours", "--mapping", "sparsemax"]
    assert main(["explore", *arguments]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    page = out.read_text(encoding="utf-8")
    assert "<title>Mine &amp; yours</title>" in page
    assert '"start":["sparsemax,gamma=1,view=0","softmax,gamma=1,view=0"]' in page


def test_explore_without_input_shows_sentences_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["explore"]) == 0
    assert capsys.readouterr().out == "regmax-explorer.html\n"
    assert "lighthouse" in (tmp_path / "regmax-explorer.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--json", "missing.json"], "No such file or directory: 'missing.json'"),
        (["--model", "nowhere"], "--model needs a sentence: `--text 'A sentence.'`."),
        (["--text", "Hello."], "--text needs the model that reads it: `--model FOLDER`."),
        (["--mapping", "nomax"], "`mapping` must be one of softmax"),
    ],
)
def test_explore_says_what_is_missing(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["explore", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_explore_without_transformers_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Captured
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert main(["explore", "--model", str(tmp_path), "--text", "Hello."]) == 2
    assert "pip install '.[transformers]'" in capsys.readouterr().err


def test_plot_remakes_the_papers_figures(tmp_path: Path, capsys: Captured) -> None:
    assert main(["plot", "figures", "--out", str(tmp_path), "--format", "svg"]) == 0
    paths = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert [path.name for path in paths] == ["mapping-curves.svg", "mapping-surfaces.svg"]
    assert all(path.read_text(encoding="utf-8").startswith("<?xml") for path in paths)


def test_plot_draws_the_chosen_sentences(file: Path, tmp_path: Path, capsys: Captured) -> None:
    assert (
        main(["plot", str(file), "--example", "2", "--mapping", "fusedmax,lam=0.2", "--out", str(tmp_path)])
        == 0
    )
    assert capsys.readouterr().out == f"{tmp_path / 'attention-2.pdf'}\n"
    assert main(["plot", str(file), "--example", "3", "--out", str(tmp_path)]) == 2
    assert "--example must be from 1 to 2. Got 3." in capsys.readouterr().err


def test_plot_refuses_what_is_no_such_file(file: Path, tmp_path: Path, capsys: Captured) -> None:
    file.write_text("[]")
    assert main(["plot", str(file), "--out", str(tmp_path)]) == 2
    assert "`examples` is empty" in capsys.readouterr().err
