"""A type checker knows what comes out of a call, and finds what is wrong with one: with torch installed and without."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
USER = Path(__file__).with_name("typed_user.txt")
# A user sees no errors inside of installed packages.
CONFIG = """\
[mypy]
strict = true
[mypy-regmax.*,numpy.*,torch.*]
ignore_errors = true
"""
# Without torch its names are unknown to the checker and stand for anything, so nothing can be said of these results.
OF_TORCH = re.compile(r"^(import torch|from torch|assert_type\(.*Tensor)")


def wrong_lines(text: str) -> set[int]:
    return {number for number, line in enumerate(text.splitlines(), 1) if "# wrong" in line}


def checked(text: str, folder: Path, *options: str, **variables: str) -> set[int]:
    """The lines of a file in which mypy finds an error."""
    user = folder / "user.py"
    user.write_text(text)
    run = subprocess.run(
        [sys.executable, "-m", "mypy", *options, user],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert run.returncode in (0, 1), run.stdout + run.stderr
    return {int(number) for number in re.findall(r"\buser\.py:(\d+): error", run.stdout)}


def test_mypy_knows_the_results_and_finds_the_mistakes(tmp_path: Path) -> None:
    """With the project's settings, which are strict, and so with what mypy remembers of torch since `make lint`."""
    text = USER.read_text(encoding="utf-8")
    assert checked(text, tmp_path) == wrong_lines(text)


def test_mypy_finds_the_mistakes_without_torch(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "numpy").symlink_to(Path(numpy.__file__).parent)
    lines = USER.read_text(encoding="utf-8").splitlines()
    text = "\n".join("" if OF_TORCH.match(line) else line for line in lines)
    text = text.replace("from typing import Any", "from typing import Any; Tensor = Any; torch: Any = None")
    (tmp_path / "mypy.ini").write_text(CONFIG)
    # Without site-packages the checker finds regmax and NumPy, and no torch.
    options = "--config-file", str(tmp_path / "mypy.ini"), "--cache-dir", str(tmp_path), "--no-site-packages"
    path = os.pathsep.join(map(str, (ROOT / "src", packages)))
    assert checked(text, tmp_path, *options, MYPYPATH=path) == wrong_lines(text)


@pytest.mark.skipif("REGMAX_PYRIGHT" not in os.environ, reason="REGMAX_PYRIGHT names a pyright to run")
def test_pyright_knows_the_results_and_finds_the_mistakes(tmp_path: Path) -> None:
    text = USER.read_text(encoding="utf-8")
    (tmp_path / "user.py").write_text(text)
    (tmp_path / "pyrightconfig.json").write_text('{"extraPaths": ["%s"]}' % (ROOT / "src"))
    command = [*os.environ["REGMAX_PYRIGHT"].split(), "--pythonpath", sys.executable, "user.py"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False)
    found = {int(number) for number in re.findall(r"user\.py:(\d+):\d+ - error", run.stdout)}
    assert found == wrong_lines(text), run.stdout
