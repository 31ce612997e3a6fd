"""The example files in the documentation have the documented format."""

from __future__ import annotations

import json
import re
from pathlib import Path

from regmax.plots import parse_examples

DOCS = Path(__file__).parents[2] / "docs"


def test_the_files_in_the_description_are_of_the_format() -> None:
    text = (DOCS / "explorer-format.md").read_text(encoding="utf-8")
    whole, views = (
        json.loads(block) for block in re.findall(r"^```json\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    )
    assert parse_examples(whole).title == "Attention of my model"
    assert len(parse_examples([views]).examples[0].views) == 2
