"""The project's metadata: the versions, and that the core is available."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import regmax
from regmax import versions
from regmax.kernels import native

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(os.environ.get("REGMAX_REQUIRE_NATIVE") != "1", reason="the core is not required")
def test_the_native_core_is_there() -> None:
    assert native.available()


def test_the_version_is_written_once() -> None:
    assert regmax.__version__ == versions.__version__
    written = [path for path in ROOT.glob("src/**/*.py") if f'"{versions.__version__}"' in path.read_text()]
    assert written == [ROOT / "src/regmax/versions.py"]


def test_show_versions_says_which_core_computes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(native, "available", lambda: True)
    monkeypatch.setattr(native, "instruction_set", lambda: "avx2")
    regmax.show_versions()
    assert "native core: avx2" in capsys.readouterr().out
    monkeypatch.setattr(native, "available", lambda: False)
    regmax.show_versions()
    assert "no native core: tensor operations" in capsys.readouterr().out


def test_every_requirement_of_the_checks_is_pinned_once() -> None:
    pins = re.findall(r"^([a-z0-9-]+)==\S+$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert len(pins) == len(set(pins))
    project = (ROOT / "pyproject.toml").read_text()
    extras = re.findall(
        r"^(?:torch|plots|cli|experiments|docs|test|dev) = \[(.*?)\]$", project, re.MULTILINE | re.DOTALL
    )
    required = {name for extra in extras for name in re.findall(r'"([a-z0-9-]+)(?:>=[0-9.]+)?"', extra)}
    assert {"torch", "matplotlib", "rich", "sacrebleu", "pytest"} <= required
    assert required - set(pins) == set()
