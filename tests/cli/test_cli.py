"""The command `regmax`: its output, its files, and its errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import regmax
from regmax.cli import demo, main, structure, terminal
from regmax.mappings import MAPPINGS, at

Captured = pytest.CaptureFixture[str]
PNG = b"\x89PNG\r\n\x1a\n"


def test_a_quick_demo_prints_every_mapping_and_names_the_picture_last(
    tmp_path: Path, capsys: Captured
) -> None:
    assert main(["demo", "--quick", "--out", str(tmp_path / "new" / "folder")]) == 0
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    path = Path(lines[-1])
    assert path == tmp_path / "new" / "folder" / "mappings.png"
    assert path.read_bytes().startswith(PNG)
    assert all(name in lines[0] for name in MAPPINGS)
    assert all(word in printed for word in demo.SENTENCE.split())


def test_demo_shows_what_it_is_about() -> None:
    rows = {name: demo.row(name, omega) for name, omega in at(demo.STRENGTHS).items()}
    assert (rows["softmax"].y != 0).all()
    assert all((row.y == 0).any() for name, row in rows.items() if name != "softmax")
    brackets = "".join(structure.brackets(rows["fusedmax"].y))
    assert brackets == " ╭│╰    ╭╰    "  # "old lighthouse keeper" and "single ship"
    letters = "".join(structure.clusters(rows["oscarmax"].y)).strip()
    assert " " in letters  # clusters may contain words that are not adjacent
    assert set(letters) == {"A", "B", "C", " "}


def test_demo_without_matplotlib_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["demo", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        "regmax demo: a figure needs matplotlib: `pip install '.[plots]'` in the folder of regmax's sources.\n"
    )


def test_demo_without_torch_shows_the_sentence_and_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    for name in [name for name in sys.modules if name.startswith("regmax.experiments")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["demo", "--out", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert "lighthouse" in printed.out
    assert printed.err == (
        "regmax demo: training needs torch: `pip install '.[experiments]'` in the folder of regmax's sources; "
        "`--quick` skips training.\n"
    )


def test_demo_says_where_it_cannot_write(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "file").write_text("")
    assert main(["demo", "--out", str(tmp_path / "file")]) == 2
    assert "regmax demo: " in capsys.readouterr().err


@pytest.mark.parametrize("rich", [True, False])
def test_table_reads_the_same_with_and_without_rich(
    rich: bool, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    if not rich:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    y = np.array([0.375, 0.375, 0.25, 0.0])
    rows = [
        structure.Row("fusedmax", "lam=0.1", y),
        structure.Row("oscarmax", "lam=0.1", y[[0, 2, 1, 3]], clustered=True),
    ]
    terminal.show("abcd", np.array([1.0, 0.9, 0.6, -1.0]), rows)
    lines = capsys.readouterr().out.splitlines()
    assert [line[20:].split() for line in lines[3:7]] == [
        ["╭", "0.375", "A", "0.375"],
        ["╰", "0.375", "0.250"],
        ["0.250", "A", "0.375"],
        ["·", "·"],
    ]
    assert lines[8].split() == ["nonzero", "3", "of", "4", "3", "of", "4"]
    assert lines[9].split() == ["distinct", "2", "2"]


def test_a_wrong_command_is_refused_and_the_commands_are_listed(capsys: Captured) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["dmeo"])
    assert stop.value.code == 2
    assert "invalid choice: 'dmeo' (choose from" in capsys.readouterr().err


def test_a_command_has_its_own_help(capsys: Captured) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--help"])
    assert stop.value.code == 0
    assert "--out" in capsys.readouterr().out


def test_help_and_version_import_no_command() -> None:
    code = (
        "import sys, regmax.cli\n"
        "try: regmax.cli.main(['--version'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('regmax.cli.demo', 'matplotlib', 'torch', 'rich') if m in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == f"regmax {regmax.__version__}\n[]\n"
