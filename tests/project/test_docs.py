"""README and documentation: every example prints the documented output, and every link has a target."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WRITTEN = [path for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")) if "_build" not in path.parts]
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WITH_EXAMPLES = [page for page in WRITTEN if FENCE.search(page.read_text(encoding="utf-8"))]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_there_are_examples_to_run() -> None:
    assert {"README.md", "docs/index.md", "docs/start.md", "docs/migration.md"} <= set(
        map(name, WITH_EXAMPLES)
    )


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=name)
def test_every_example_prints_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # pages save pictures
    blocks = FENCE.findall(page.read_text(encoding="utf-8"))
    assert all(">>> " in block for block in blocks), "an example without a prompt is not run"
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    # One page is one session: a later block may use the names of an earlier one.
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, name(page), name(page), 0)
    failures: list[str] = []
    runner.run(test, out=failures.append)
    assert not failures, "".join(failures)


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text(encoding="utf-8"))
    # The gallery is written when the site is built, and then Sphinx checks the links to it.
    written = [link for link in links if "gallery/" not in link]
    assert [link for link in written if not (page.parent / link).exists()] == []


def test_tables_of_benchmarks_come_from_the_kept_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    assert importlib.import_module("page").main(["--check"]) == 0


def test_tables_of_results_come_from_the_kept_runs() -> None:
    spec = importlib.util.spec_from_file_location("result_tables", ROOT / "docs" / "results" / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.main(["--check"]) == 0
