"""The documentation's examples print what the pages say."""

from __future__ import annotations

import doctest
import json
import re
from pathlib import Path

import pytest

from regmax.plots import parse_examples

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", ["plots.md", "explorer-format.md"])
def test_every_example_runs(name: str) -> None:
    blocks = re.findall(
        r"^```python\n(.*?)^```$", (DOCS / name).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, name, name, 0)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0


def test_the_files_in_the_description_are_of_the_format() -> None:
    text = (DOCS / "explorer-format.md").read_text(encoding="utf-8")
    whole, views = (
        json.loads(block) for block in re.findall(r"^```json\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    )
    assert parse_examples(whole).title == "Attention of my model"
    assert len(parse_examples([views]).examples[0].views) == 2
