"""Whatever is wrong, a command says it in one line, with exit code 2, and writes nothing."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from regmax.cli import main
from regmax.cli.parser import Parser

Captured = pytest.CaptureFixture[str]
ONE = {"source": ["a", "b"], "target": ["c"], "scores": [[1, 0.5]]}
TINY = ["--generated", "30", "--batch", "8", "--words", "8", "--hidden", "8", "--no-tensorboard"]


def refused(arguments: Sequence[str], capsys: Captured) -> str:
    """Run a command that must fail; the line it prints."""
    try:
        code = main(arguments)
    except SystemExit as stop:  # argparse's way
        code = stop.code if isinstance(stop.code, int) else 1
    printed = capsys.readouterr()
    assert code == 2
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert printed.err.startswith(f"regmax {arguments[0]}")
    return printed.err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[" * 100_000 + "]" * 100_000, "is not JSON: it is nested too deeply"),
        (json.dumps([{**ONE, "scores": [[10**400, 1]]}]), "`examples[0].scores[0][0]` must be finite"),
        (
            '[{"source": ["a"], "target": ["b"], "scores": [[' + "1" * 5000 + "]]}]",
            "is not JSON: Exceeds the limit",
        ),
        (json.dumps([{**ONE, "source": ["a", "\ud800"]}]), "`examples[0].source[1]` must be Unicode text"),
        (json.dumps([{**ONE, "name": "\udfff"}]), "`examples[0].name` must be Unicode text"),
        (json.dumps({"title": "\ud800", "examples": [ONE]}), "`title` must be Unicode text"),
        (
            json.dumps({"mappings": ["fusedmax,lam=nan"], "examples": [ONE]}),
            "must be non-negative and finite. Got nan",
        ),
        (json.dumps([{**ONE, "source": [list(range(10_000))]}]), "must be a string. Got [0, 1, 2"),
        ("\ufeff[]", "is not JSON"),
    ],
    ids=[
        "nested",
        "large integer",
        "long integer",
        "surrogate",
        "name",
        "title",
        "mapping",
        "long value",
        "BOM",
    ],
)
def test_json_of_any_kind(content: str, message: str, tmp_path: Path, capsys: Captured) -> None:
    file, page = tmp_path / "scores.json", tmp_path / "page.html"
    file.write_text(content, encoding="utf-8")
    assert message in refused(["explore", "--json", str(file), "--out", str(page)], capsys)
    assert not page.exists()


def test_a_title_that_is_no_text_keeps_the_page_that_is_there(tmp_path: Path, capsys: Captured) -> None:
    page = tmp_path / "page.html"
    page.write_text("before")
    refused(["explore", "--out", str(page), "--title", "\udcff"], capsys)
    assert page.read_text() == "before"


@pytest.mark.parametrize(
    "mapping", ["fusedmax,lam=nan", "fusedmax,lam=-1", "softmax,gamma=0", "sqpnormmax,p=3"]
)
@pytest.mark.parametrize("command", ["explore", "plot"])
def test_strengths_out_of_range(mapping: str, command: str, tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "scores.json"
    file.write_text(json.dumps([ONE]))
    given = ["--json", str(file)] if command == "explore" else [str(file)]
    out = tmp_path / "out"
    line = refused([command, *given, "--mapping", mapping, "--out", str(out)], capsys)
    assert "must be" in line
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "nope"], "`device` must be one that torch can use here. Got 'nope'"),
        (["--device", "meta"], "`device` must be one that torch can use here. Got 'meta'"),
        (["--hidden", "0"], "`hidden` must be positive. Got 0"),
        (["--hidden", str(10**30)], "`hidden` must be below 2**31"),
        (["--hidden", "7"], "`hidden` must be even for `bidirectional`. Got 7"),
        (["--shared", "--words", "8"], "`words` must equal `hidden` for `shared`"),
        (["--dropout", "2"], "`dropout` must be in [0, 1). Got 2.0"),
        (["--lam", "nan"], "`lam` must be non-negative. Got nan"),
        (["--lam", "-3"], "`lam` must be non-negative. Got -3.0"),
        (["--p", "5"], "`p` must be in (1, 2]. Got 5.0"),
        (["--gamma", "inf"], "`gamma` must be finite. Got inf"),
        (["--seed", str(10**30)], "`seed` must be in [0, 2**63)"),
        (["--patience", "-1"], "`patience` must be non-negative. Got -1"),
        (["--epochs", "five"], "argument --epochs: invalid int value: 'five'"),
        (["--colour", "red"], "unrecognized arguments: --colour red"),
    ],
)
def test_values_of_train(options: list[str], message: str, tmp_path: Path, capsys: Captured) -> None:
    assert message in refused(["train", "translation", *options, "--out", str(tmp_path / "run")], capsys)
    assert not (tmp_path / "run").exists()


def test_a_gpu_that_is_not_there(tmp_path: Path, capsys: Captured) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is one")
    line = refused(["train", "translation", "--device", "cuda", "--out", str(tmp_path / "run")], capsys)
    assert "`device` must be one that torch can use here. Got 'cuda:0'" in line


@pytest.mark.parametrize("threads", ["0", "-1", "two"])
def test_threads_of_bench(threads: str, tmp_path: Path, capsys: Captured) -> None:
    assert "argument --threads: must be a positive integer" in refused(
        ["bench", "--quick", "--threads", threads, "--out", str(tmp_path / "out")], capsys
    )


def test_a_table_on_a_terminal_that_knows_only_ascii(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = {
        "task": "translation",
        "mapping": "softmax",
        "data": ["generated"],
        "attention": {},
        "speed": {},
    }
    for seed in range(2):
        (tmp_path / str(seed)).mkdir()
        result = {**record, "seed": seed, "scores": {"BLEU": 30.0 + seed}}
        (tmp_path / str(seed) / "result.json").write_text(json.dumps(result))
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(["table", str(tmp_path)]) == 0
    stream.flush()
    assert b"30.50 +- 0.71" in stream.buffer.getvalue()


def test_an_interrupt_says_how_to_resume(tmp_path: Path) -> None:
    folder = tmp_path / "a run"
    code = (
        "import signal, sys; from regmax.cli import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    options = ["train", "entailment", *TINY, "--epochs", "10000", "--out", str(folder)]
    command = [sys.executable, "-c", code, *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    while not (folder / "last.safetensors").exists():
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    again = f"regmax train entailment --resume --out '{folder}'"
    assert errors == f"regmax train: interrupted: `{again}` continues from the last checkpoint.\n"
    assert not list(folder.glob(".*"))


def test_an_error_of_the_parser_is_one_line(capsys: Captured) -> None:
    parser = Parser(prog="regmax test")
    parser.add_argument("--number", type=int)
    with pytest.raises(SystemExit) as stop:
        parser.parse(["--number", "a\nb"])
    assert stop.value.code == 2
    assert capsys.readouterr().err == (
        "regmax test: argument --number: invalid int value: 'a\\nb'. `regmax test --help` describes the options.\n"
    )
