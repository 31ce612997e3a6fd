"""The JSON file of sentences and scores: valid content, and the errors for invalid content."""

from __future__ import annotations

import copy
import json
import math
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regmax.plots import (
    FormatError,
    Setting,
    demo_examples,
    explorer,
    explorer_page,
    parse_examples,
    read_examples,
)

ONE: dict[str, Any] = {"source": ["a", "b"], "target": ["c"], "scores": [[1, 0.5]]}


def changed(**changes: Any) -> dict[str, Any]:
    return {"examples": [{**copy.deepcopy(ONE), **changes}]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (3, "`the file` must be an object. Got int."),
        ({}, "`examples` must be a list. Got nothing."),
        ({"examples": []}, "`examples` is empty"),
        ({"format": "regmax-examples/2", "examples": [ONE]}, "`format` must be 'regmax-examples/1'. Got"),
        ([7], "`examples[0]` must be an object. Got int."),
        (changed(source=[]), "`examples[0].source` is empty"),
        (changed(source="ab"), "`examples[0].source` must be a list. Got str."),
        (changed(source=["a", 2]), "`examples[0].source[1]` must be a string. Got 2."),
        (
            changed(target=["c", "d"]),
            "`examples[0].scores` must have a row for each of 2 target tokens. Got 1.",
        ),
        (
            changed(scores=[[1]]),
            "`examples[0].scores[0]` must have a score for each of 2 source tokens. Got 1.",
        ),
        (
            changed(scores=[[1, "x"]]),
            "`examples[0].scores[0][1]` must be a number, or null if it is masked. Got 'x'.",
        ),
        (
            changed(scores=[[1, True]]),
            "`examples[0].scores[0][1]` must be a number, or null if it is masked. Got True.",
        ),
        (
            changed(scores=[[math.nan, 1]]),
            "`examples[0].scores[0][0]` must be finite, or null if it is masked. Got nan.",
        ),
        (
            changed(scores=[[1, math.inf]]),
            "`examples[0].scores[0][1]` must be finite, or null if it is masked. Got inf.",
        ),
        (changed(views=[]), "`examples[0].views` is empty"),
        (
            changed(views=[{"scores": [[1]]}]),
            "`examples[0].views[0].scores[0]` must have a score for each of 2",
        ),
        (changed(mapping="nomax"), "`examples[0].mapping`: `mapping` must be one of softmax"),
        (
            {"mappings": ["softmax,lam=1"], "examples": [ONE]},
            "`softmax` has the strengths gamma. Got 'lam=1'",
        ),
        (
            {"mappings": ["fusedmax,lam=x"], "examples": [ONE]},
            "`fusedmax(..., lam=...)` must be a number. Got 'lam=x'",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_place(content: Any, message: str) -> None:
    with pytest.raises(FormatError, match=re.escape(message)):
        parse_examples(content)


def test_a_file_that_is_not_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text("{")
    with pytest.raises(FormatError, match=r"broken\.json is not JSON: .* line 1"):
        read_examples(path)
    path.write_text("[4]")
    with pytest.raises(FormatError, match=r"broken\.json: `examples\[0\]` must be an object"):
        read_examples(path)


def test_null_and_minus_infinity_delete_a_position() -> None:
    for gone in (None, -math.inf):
        (example,) = parse_examples(changed(scores=[[gone, 2]])).examples
        assert example.views[0].scores.tolist() == [[-math.inf, 2.0]]
        assert np.isnan(Setting("softmax")(example.views[0].scores)).tolist() == [[True, False]]


def test_views_share_the_source_and_may_have_their_own_target_and_mapping() -> None:
    views = [
        {"name": "one", "scores": [[1, 2]]},
        {"name": "two", "target": ["d", "e"], "scores": [[1, 2], [3, 4]], "mapping": "fusedmax,lam=0.2"},
    ]
    (example,) = parse_examples(changed(views=views)).examples
    assert [view.target for view in example.views] == [("c",), ("d", "e")]
    assert [view.mapping for view in example.views] == [None, Setting("fusedmax", (("lam", 0.2),))]


def test_the_numbers_in_the_page_are_those_of_the_file() -> None:
    scores = np.random.default_rng(0).normal(size=(3, 4)).tolist()
    page = explorer_page(parse_examples(changed(source=list("abcd"), target=list("xyz"), scores=scores)))
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert data["examples"][0]["views"][0]["scores"] == scores


def test_the_style_sheet_has_the_palettes_colours() -> None:
    sets = re.findall(r":root.*?\{(.*?)\}", files(explorer).joinpath("base.css").read_text(), re.DOTALL)
    for declared, colours in zip(
        sets, (explorer.palette()["light"], explorer.palette()["dark"]), strict=True
    ):
        ramp = {"low": colours["ramp"][0], "mid": colours["ramp"][2], "high": colours["ramp"][-1]}
        expected = {name: colours[name] for name in ("paper", "ink", "zero")} | ramp
        found = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]+);", declared))
        assert {name: found[name] for name in expected} == expected


def test_a_token_cannot_end_the_script_it_stands_in() -> None:
    hostile = ["</script><script>alert(1)</script>", "<!--", "]]>", "\u2028"]
    page = explorer_page(parse_examples(changed(source=hostile, scores=[[1, 2, 3, 4]], name="<b>")))
    data = page.split('id="data">')[1].split("</script>")[0]
    assert not set("<>&") & set(data)
    assert json.loads(data)["examples"][0]["source"] == hostile


def test_the_page_names_nothing_outside_itself() -> None:
    page = explorer_page(demo_examples())
    addresses = set(re.findall(r"https?://[^\s\"'<>]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the SVG namespace, which is not loaded
    assert not re.findall(r"<(link|iframe|object|embed|base)\b|\bsrc=|@import|url\(", page)
    assert "innerHTML" not in page


def test_the_sentences_that_come_with_regmax_show_what_they_claim() -> None:
    examples = {example.name: example for example in demo_examples().examples}
    (negation,) = examples["Translation: French negation"].views
    y = Setting.parse("oscarmax,lam=0.05")(negation.scores)[negation.target.index("never")]
    source = examples["Translation: French negation"].source
    assert [token for token, weight in zip(source, y, strict=True) if weight == y.max()] == ["n'", "jamais"]
