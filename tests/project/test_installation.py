"""`pip install` on a machine without a C++ compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
TOOLS = Path(sys.executable).parent  # pip, CMake and Ninja, but no compiler


def build_wheel(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Build the wheel into `folder`, with a PATH without a compiler."""
    hidden = {"CC", "CXX", "CMAKE_ARGS", "SKBUILD_CMAKE_ARGS", "REGMAX_REQUIRE_NATIVE"}
    inherited = {name: value for name, value in os.environ.items() if name not in hidden}
    command = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps"]
    return subprocess.run(
        [*command, f"--wheel-dir={folder}", f"-Cbuild-dir={folder / 'build'}", str(ROOT)],
        env={**inherited, "PATH": str(TOOLS), **environment},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def no_compiler() -> None:
    if any((TOOLS / name).exists() for name in ("c++", "g++", "clang++")):
        pytest.skip("a compiler is installed in Python's folder")


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_the_wheel_is_pure_python_and_works(tmp_path: Path) -> None:
    built = build_wheel(tmp_path)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    target = tmp_path / "installed"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", target, wheel],
        check=True,
    )
    program = f"""
import sys
sys.path[:0] = [{str(target)!r}, {str(Path(np.__file__).parents[1])!r}]
import numpy, regmax
assert regmax.__file__.startswith({str(target)!r}), regmax.__file__
print(regmax.fusedmax(numpy.array([1.0, 0.9, 0.6]), lam=0.1).round(3))
regmax.show_versions()
"""
    # -S: a hook of the site module would find the editable installation under test.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REGMAX_")}
    ran = subprocess.run(
        [sys.executable, "-S", "-E", "-c", program], env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert "[0.4 0.4 0.2]" in ran.stdout
    assert "no native core" in ran.stdout


@pytest.mark.usefixtures("no_compiler")
def test_a_required_core_that_cannot_be_built_is_an_error(tmp_path: Path) -> None:
    built = build_wheel(tmp_path, REGMAX_REQUIRE_NATIVE="1")
    assert built.returncode != 0
    assert "CMAKE_CXX_COMPILER" in built.stdout + built.stderr
    assert not list(tmp_path.glob("*.whl"))
