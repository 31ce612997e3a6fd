"""Every file that a command writes is whole at every moment: on a full disk, and after a kill."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import regmax
from regmax.cli import main
from regmax.files import remove_leftovers, write_atomically

SOURCES = Path(regmax.__file__).parent
# A kilobyte a time: the test needs moments between the beginning and the end of a write.
SLOW = """
import io, pathlib, sys, time
from regmax import files
class Slow(io.FileIO):
    def write(self, data):
        for start in range(0, len(data), 1024):
            super().write(data[start : start + 1024])
            time.sleep(0.002)
files.Path.open = lambda path, mode="rb": Slow(str(path), mode)
files.write_atomically(pathlib.Path(sys.argv[1]), b"new" * 100_000)
"""


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of 96 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no command `mount`")
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Leave no room in a file system."""
    with contextlib.suppress(OSError):
        (folder / "filler").write_bytes(b"x" * 2**20)


def test_a_full_disk_keeps_the_old_content_and_leaves_nothing_behind(full_disk: Path) -> None:
    write_atomically(full_disk / "file", "old")
    with pytest.raises(OSError, match="No space left on device"):
        write_atomically(full_disk / "file", b"x" * 2**20)
    assert (full_disk / "file").read_text() == "old"
    assert [path.name for path in full_disk.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["explore", "--out", "page.html"], "page.html"),
        (["plot", "scores.json", "--format", "svg", "--out", "."], "attention-1.svg"),
        (["demo", "--quick", "--out", "."], "mappings.png"),
    ],
)
def test_commands_on_a_full_disk_keep_what_is_there(
    command: list[str],
    name: str,
    full_disk: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    one = {"source": ["a", "b"], "target": ["c"], "scores": [[1, 0.5]]}
    (full_disk / "scores.json").write_text(json.dumps([one]))
    (full_disk / name).write_text("before")
    fill(full_disk)
    with monkeypatch.context() as inside:  # a process inside it would keep the disk mounted
        inside.chdir(full_disk)
        assert main(command) == 2
    assert f"regmax {command[0]}: [Errno 28] No space left on device" in capsys.readouterr().err
    assert (full_disk / name).read_text() == "before"
    assert {path.name for path in full_disk.iterdir()} == {"scores.json", name, "filler"}


def test_training_on_a_full_disk_says_so_and_leaves_no_part_of_a_checkpoint(
    full_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--generated", "30", "--epochs", "2", "--words", "64", "--hidden", "64", "--no-tensorboard"]
    assert main(["train", "entailment", *sizes, "--out", str(full_disk / "run")]) == 2
    assert capsys.readouterr().err == "regmax train: [Errno 28] No space left on device\n"
    assert {path.name for path in (full_disk / "run").iterdir()} == {"config.json", "vocabulary.txt"}


def test_a_kill_leaves_the_old_content_and_the_next_write_removes_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    process = subprocess.Popen([sys.executable, "-c", SLOW, str(path)])
    while not (tmp_path / ".file.tmp").exists() or not (tmp_path / ".file.tmp").stat().st_size:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert path.read_bytes() == b"old"
    write_atomically(path, b"new")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("file", b"new")]


def test_leftovers_of_a_kill_are_removed_and_hidden_files_are_not(tmp_path: Path) -> None:
    for name in (".last.safetensors.tmp", ".profile", "notes.tmp"):
        (tmp_path / name).write_text("")
    remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {".profile", "notes.tmp"}


def test_an_interrupt_during_a_write_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file", "new")
    assert not list(tmp_path.iterdir())


def test_links_modes_and_devices_are_respected(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "real").chmod(0o640)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o640
    write_atomically(Path("/dev/null"), "gone")


def test_nothing_in_the_package_writes_a_file_in_another_way() -> None:
    """The allowed exceptions: `write_atomically` itself, and figures that go to memory."""
    found = []
    for file in SOURCES.rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            name = getattr(call.func, "attr", "") if isinstance(call, ast.Call) else ""
            if name in ("write_text", "write_bytes", "savefig", "save_file", "dump"):
                found.append((file.relative_to(SOURCES).as_posix(), name))
    assert sorted(found) == [("files.py", "write_bytes"), ("plots/figures.py", "savefig")]
