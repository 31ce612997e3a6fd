"""The explorer as the value of a notebook's cell: in a frame, without a network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from browser import Browser, Page
from hostile import HOSTILE

import regmax
from regmax.plots import Examples, explore, parse_examples

ONE = {"source": [*HOSTILE], "target": ["x"], "scores": [[0.0] * len(HOSTILE)]}


def recorded(words: int = 4) -> regmax.nn.AttentionRecord:
    layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    regmax.replace_attention(model, "sparsemax")
    with regmax.record_attention(model) as record:
        model(torch.randn(1, words, 8))
    return record


def test_the_page_runs_inside_a_frame(browser: Browser, tab: Callable[..., Page], tmp_path: Path) -> None:
    title = 'Title "> <script>alert(1)</script>'
    cell = explore(parse_examples({"title": title, "examples": [ONE]}))._repr_html_()
    assert cell.count("<iframe") == 1
    path = tmp_path / "notebook.html"
    path.write_text(f"<!DOCTYPE html><meta charset='utf-8'><body>{cell}</body>", encoding="utf-8")
    page = tab()
    # A sandboxed frame runs in a process of its own, which is attached to by its own session.
    page.call("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=False, flatten=True)
    page.open(path)
    assert page.evaluate("document.querySelectorAll('script').length") == 0
    assert page.evaluate("document.querySelector('iframe').title") == title

    def session() -> Any:
        page.settle()
        attached = [event for event in browser.events if event.get("method") == "Target.attachedToTarget"]
        frames = [event["params"] for event in attached if event["params"]["targetInfo"]["type"] == "iframe"]
        return frames and frames[-1]["sessionId"]

    frame = page.wait(session)
    count = "document.querySelectorAll('#left .cell').length"
    found = page.wait(lambda: browser.call("Runtime.evaluate", frame, expression=count)["result"]["value"])
    assert found == len(HOSTILE)


def test_what_is_explored(tmp_path: Path) -> None:
    assert repr(explore()) == "Explorer('Sparse and structured attention', 8 examples)"
    assert repr(explore([ONE])) == "Explorer('Attention weights', 1 example)"
    path = explore([ONE]).save(tmp_path / "page.html")
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    (tmp_path / "scores.json").write_text('[{"source": ["a"], "target": ["b"], "scores": [[1]]}]')
    assert isinstance(explore(tmp_path / "scores.json").examples, Examples)
    with pytest.raises(TypeError, match=r"`explore\(what\)` shows examples, a record.*Got float\."):
        explore(3.5)  # type: ignore[arg-type]


def test_a_record_shows_itself_with_numbers_and_explore_with_words() -> None:
    record = recorded()
    assert record._repr_html_().startswith("<iframe")
    (example,) = explore(record).examples.examples
    assert example.source == ("1", "2", "3", "4")
    (example,) = explore(record, ["a", "b", "c", "d"]).examples.examples
    assert example.views[0].target == ("a", "b", "c", "d")
    assert [view.layer for view in example.views] == ["layers.0.self_attn"] * 2 + ["layers.1.self_attn"] * 2
    assert regmax.nn.AttentionRecord()._repr_html_() is None
    with pytest.raises(ValueError, match=r"needs recorded weights\. Got an empty record"):
        explore(regmax.nn.AttentionRecord())


def test_a_record_with_millions_of_weights_shows_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regmax.nn.recording._SHOWN", 10)
    assert recorded()._repr_html_() is None
