"""The install line of the README brings everything that its commands need."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest

tomllib = pytest.importorskip("tomllib", reason="Python 3.10 cannot read pyproject.toml")
ROOT = Path(__file__).parents[2]
# As if only some distributions were installed: every other module is not found.
ONLY = """
import sys
hidden = set(sys.argv[1].split(","))
class Finder:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in hidden else self.finder.find_spec(name, path, target)
sys.meta_path[:] = [Finder(finder) for finder in sys.meta_path]
from regmax.cli import main
for command in {commands}:
    if status := main(command):
        sys.exit(f"regmax {{' '.join(command)}}: {{status}}")
"""
# One process for all: importing torch takes longer than each of them.
COMMANDS = [
    ["demo", "--quick", "--out", "demo"],
    ["train", "translation", "--mapping", "fusedmax", "--generated", "20", "--epochs", "1", "--words", "8", "--hidden",
     "8"],
    ["explore"],
    ["plot", "figures"],
]  # fmt: skip


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def required(extra: str) -> set[str]:
    """The distributions that `pip install '.[extra]'` brings, with all that they need in turn."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras, found = project["optional-dependencies"], set()

    def add(lines: list[str]) -> None:
        for line in lines:
            name = normal(re.split(r"[\s\[<>=!~;(]", line, maxsplit=1)[0])
            if name == "regmax":
                for inner in re.findall(r"\[(.*)\]", line)[0].split(","):
                    add(extras[inner])
            elif name not in found and "extra ==" not in line:
                found.add(name)
                try:
                    add(requires(name) or [])
                except ImportError:  # needed elsewhere: on Windows, say
                    continue

    add([*project["dependencies"], *extras[extra]])
    return found


def install_line() -> str:
    """The extra of the line that the README tells to run."""
    (extra,) = re.findall(
        r"^ {4}pip install '\.\[([a-z,]+)\]'", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    return extra


def test_the_readmes_commands_run_after_its_install_line(tmp_path: Path) -> None:
    allowed = required(install_line()) | {"regmax", "setuptools", "pip"}
    modules = packages_distributions()
    hidden = {
        module
        for module, distributions in modules.items()
        if not {normal(name) for name in distributions} & allowed and module.isidentifier()
    }
    assert "transformers" in hidden  # an extra of its own
    program = [sys.executable, "-c", ONLY.format(commands=COMMANDS), ",".join(sorted(hidden))]
    ran = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_no_hint_names_a_distribution_that_is_on_no_index() -> None:
    pages = [*ROOT.glob("src/**/*.py"), *ROOT.glob("docs/**/*.md"), ROOT / "README.md"]
    wrong = [path for path in pages if re.search(r"pip install '?regmax", path.read_text(encoding="utf-8"))]
    assert wrong == []
