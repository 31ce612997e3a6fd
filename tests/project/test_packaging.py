"""The workflows, the support matrix, the changelog and the package's metadata agree with the project."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from importlib import metadata
from pathlib import Path

import pytest

import regmax

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))


def commands(text: str) -> list[str]:
    """The targets and assignments of every `make` in a text."""
    return re.findall(r"\bmake ((?:[a-z][a-z-]*|[A-Z]+=\S+)(?: +(?:[a-z][a-z-]*|[A-Z]+=\S+))*)", text)


def test_there_are_workflows_for_everything() -> None:
    expected = {"tests", "wheels", "docs", "sanitizers", "nightly", "release"}
    assert {path.stem for path in WORKFLOWS} == expected


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_calls_targets_that_exist(path: Path) -> None:
    # `make` is a command only in `run:`; comments may say "make" as a verb.
    text = re.sub(r"\$\{\{.*?\}\}", "X", path.read_text())
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    called = commands(
        "\n".join(line for line in lines if "run:" in line or line.lstrip().startswith("make "))
    )
    assert called or path.stem == "release"
    names = {word for call in called for word in call.split() if "=" not in word}
    assert names <= targets()
    assigned = {word.partition("=")[0] for call in called for word in call.split() if "=" in word}
    assert all(f"$({name})" in read("Makefile") for name in assigned)


def test_continuous_integration_calls_targets_that_exist() -> None:
    calls = [line.split()[1:] for line in read(".ci/run").splitlines() if line.startswith("make ")]
    called = {word for call in calls for word in call if "=" not in word}
    assert {"lint", "test", "test-frameworks"} <= called
    stamps = {
        f".venv/{name}" for name in re.findall(r"^[A-Z]+ := \$\(VENV\)/(\.\w+)$", read("Makefile"), re.M)
    }
    assert called <= targets() | stamps


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 cannot read pyproject.toml")
@pytest.mark.parametrize("extra", ["experiments", "dev", "frameworks"])
def test_the_requirements_that_make_installs_are_those_of_the_extra(
    extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from requirements import requirements

    listed = requirements(extra)
    assert "numpy>=1.26" in listed
    assert not [line for line in listed if "regmax" in line]
    required = [
        line for line in metadata.requires("regmax") or [] if f"extra == '{extra}'" in line.replace('"', "'")
    ]
    own = {re.split(r"[ ;]", line)[0] for line in required if not line.startswith("regmax")}
    assert own
    assert {re.split(r"[<>=]", line)[0] for line in own} <= {re.split(r"[<>=]", line)[0] for line in listed}


def test_every_target_is_phony_or_a_file() -> None:
    (phony,) = re.findall(r"^\.PHONY: ((?:.*\\\n)*.*)$", read("Makefile"), re.MULTILINE)
    assert targets() == set(phony.replace("\\\n", " ").split())


def test_the_changelog_names_the_version() -> None:
    versions = re.findall(r"^## (.*)$", read("CHANGELOG.md"), re.MULTILINE)
    assert versions[0] == "Unreleased"
    assert versions[1].split()[0] == f"v{regmax.__version__}"


@pytest.mark.parametrize("section", re.split(r"^## ", read("CHANGELOG.md"), flags=re.MULTILINE)[1:])
def test_the_changelog_has_the_usual_headings_in_order(section: str) -> None:
    headings = re.findall(r"^### (.*)$", section, re.MULTILINE)
    assert headings == [name for name in ("Added", "Changed", "Fixed", "Performance") if name in headings]


def bounds() -> dict[str, str]:
    """The lower bounds in pyproject.toml."""
    text = read("pyproject.toml")
    found = dict(
        re.findall(r'"([a-z]+)>=([0-9.]+)"', text.partition("[project.scripts]")[0].partition("[project]")[2])
    )
    (found["python"],) = re.findall(r'^requires-python = ">=([0-9.]+)"$', text, re.MULTILINE)
    return found


def matrix() -> dict[str, tuple[str, str]]:
    """The lowest versions of docs/support.md, and the extra that installs each requirement."""
    names = {"pytorch": "torch"}
    rows = re.findall(r"^\| (\w+)(?: \(`(\w+)`\))? \| ([0-9.]+) \|", read("docs/support.md"), re.MULTILINE)
    return {names.get(name.lower(), name.lower()): (lowest, extra) for name, extra, lowest in rows}


def test_the_support_matrix_has_the_bounds_of_the_project() -> None:
    assert {name: lowest for name, (lowest, _) in matrix().items()} == bounds()


def test_the_support_matrix_names_the_extras() -> None:
    for name, (_, extra) in matrix().items():
        if extra:
            assert re.search(rf'^{extra} = \[.*"{name}>=', read("pyproject.toml"), re.MULTILINE)


def test_the_oldest_versions_are_the_bounds() -> None:
    oldest = dict(re.findall(r"^([a-z]+)==(\S+)$", read("constraints-oldest.txt"), re.MULTILINE))
    for name in ("numpy", "torch", "transformers"):
        assert f"{oldest[name]}.".startswith(f"{bounds()[name]}.")


def test_attention_needs_no_name_that_the_oldest_torch_lacks() -> None:
    program = """
import torch
vars(torch.compiler).pop("is_exporting", None)
vars(torch.compiler).pop("_is_exporting_flag", None)
import regmax, regmax.nn
x = torch.eye(3)[None]
assert regmax.attention(x, 4 * x, x, mapping="sparsemax").equal(x)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_readme_of_the_package_index_has_absolute_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "metadata"))
    monkeypatch.chdir(ROOT)
    import index_readme

    text = index_readme.dynamic_metadata("readme", {})["text"]
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 20
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)
    start = f"https://raw.githubusercontent.com/regmax/regmax/v{regmax.__version__}/"
    assert [link for link in pictures if not (ROOT / link.removeprefix(start)).is_file()] == []
    with pytest.raises(ValueError, match="provides `readme`"):
        index_readme.dynamic_metadata("version", {})


def test_the_readme_of_the_package_index_has_no_tex(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "metadata"))
    monkeypatch.chdir(ROOT)
    import index_readme

    text = index_readme.dynamic_metadata("readme", {})["text"]
    assert not re.search(r"\$|\\[a-zA-Z]", text)
    assert "`½ ‖y‖_2^2 + λ Σ_i ∣y_(i+1) - y_i∣`" in text
    with pytest.raises(ValueError, match="readable as text"):
        index_readme.plain(r"$\sqrt y$")


def test_a_wrong_tag_is_no_release(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import check_version

    assert check_version.main([]) == check_version.main([f"v{regmax.__version__}"]) == 0
    assert check_version.main(["v9.9.9"]) == 1
    assert "9.9.9" in capsys.readouterr().out


def test_an_sdist_with_files_of_an_environment_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import check_installations

    sdist, source = tmp_path / "regmax-1.tar.gz", tmp_path / "file"
    source.touch()
    with tarfile.open(sdist, "w:gz") as archive:
        for name in ("PKG-INFO", ".venv/lib/CMakeLists.txt", "src/regmax/build.py"):
            archive.add(source, f"regmax-1/{name}")
    assert check_installations.strangers(sdist) == [".venv"]
    folder = tmp_path / "dist"
    folder.mkdir()
    for name in (sdist.name, "regmax-1-py3-none-any.whl", "regmax-1-cp310-abi3-linux_x86_64.whl"):
        (folder / name).write_bytes(sdist.read_bytes())
    monkeypatch.setattr(sys, "argv", ["check_installations.py", str(folder)])
    assert check_installations.main() == 1
    assert "must hold only the sources. Got .venv." in capsys.readouterr().err


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 cannot read pyproject.toml")
def test_wheels_are_built_once_per_platform() -> None:
    import tomllib

    tool = tomllib.loads(read("pyproject.toml"))["tool"]
    assert tool["scikit-build"]["wheel"]["py-api"] == "cp310"
    assert all(pattern.startswith("cp310-") for pattern in tool["cibuildwheel"]["build"])
    assert (ROOT / tool["cibuildwheel"]["test-command"].split("{project}/")[1].split()[0]).is_file()
