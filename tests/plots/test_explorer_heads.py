"""Whole models in the explorer: all heads as thumbnails, one head as lines, two models head by head."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Page
from hostile import HOSTILE

import regmax
from regmax.plots import Setting, parse_examples, write_explorer

Tab = Callable[..., Page]
LAYERS, HEADS, WORDS = 2, 3, 7
TOKENS = ["the", "old", "keeper", "saw", "the", "ship", *HOSTILE[:1]]
RNG = np.random.default_rng(3)
SCORES = {
    (model, layer, head): RNG.normal(size=(WORDS, WORDS)).round(3)
    for model in ("before", HOSTILE[0])
    for layer in range(LAYERS)
    for head in range(HEADS)
}


@pytest.fixture(scope="module")
def model_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    views = [
        {"name": f"layer {layer + 1}, head {head + 1}", "layer": f"<b>layer {layer + 1}", "model": model,
         "scores": scores.tolist()}
        for (model, layer, head), scores in SCORES.items()
    ]  # fmt: skip
    content: dict[str, Any] = {
        "mappings": ["fusedmax,lam=0.2", "sparsemax"],
        "examples": [{"source": TOKENS, "target": TOKENS, "views": views}],
    }
    return write_explorer(parse_examples(content), tmp_path_factory.mktemp("model") / "page.html")


def painted(page: Page, panels: int = 2) -> None:
    page.settle()
    page.wait(lambda: page.evaluate("document.querySelectorAll('.figure[data-painted]').length") == panels)


@pytest.mark.parametrize("width", [360, 1280, 1900])
def test_every_head_is_a_thumbnail_with_its_support_and_segments(
    tab: Tab, model_page: Path, width: int
) -> None:
    page = tab(width=width).open(model_page, "#show=heads")
    painted(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    said = page.evaluate("[...document.querySelectorAll('#left .head')].map((head) => head.title)")
    assert len(said) == LAYERS * HEADS
    setting = Setting.parse("fusedmax,lam=0.2")
    for text, scores in zip(said, list(SCORES.values())[: LAYERS * HEADS], strict=True):
        y = setting(scores)
        support = np.count_nonzero(y) / WORDS
        # Segments: a nonzero weight that differs from the one before begins one.
        starts = (y > 0) & (np.diff(y, axis=1, prepend=0) != 0)
        length = np.count_nonzero(y) / np.count_nonzero(starts)
        zeros = 100 * np.mean(y == 0)
        assert f"support {support:.1f} of 7 words, segments of {length:.2f}, {zeros:.0f} % zero" in text
    layers = page.evaluate("[...document.querySelectorAll('#left .layer')].map((one) => one.textContent)")
    assert layers == ["<b>layer 1", "<b>layer 2"]


def test_a_click_opens_the_same_head_of_both_models(tab: Tab, model_page: Path) -> None:
    page = tab().open(model_page, "#show=heads")
    painted(page)
    assert page.evaluate("document.getElementById('right-model').value") == HOSTILE[0]
    page.evaluate("document.querySelectorAll('#right .head')[4].click()")
    page.settle()
    chosen = [
        page.evaluate(f"Number(document.getElementById('{side}-scores').value)") for side in ("left", "right")
    ]
    assert chosen == [4, 4 + LAYERS * HEADS]
    for side, model, mapping in (("left", "before", "fusedmax,lam=0.2"), ("right", HOSTILE[0], "sparsemax")):
        shown = page.evaluate(
            f"[...document.querySelectorAll('#{side} g[role=row]')].map((row) =>"
            " [...row.querySelectorAll('.cell')].map((cell) => Number(cell.dataset.weight)))"
        )
        np.testing.assert_allclose(shown, Setting.parse(mapping)(SCORES[model, 1, 1]), atol=1e-9)


def test_a_panel_changes_its_model_and_keeps_the_head(tab: Tab, model_page: Path) -> None:
    page = tab().open(model_page, "#left=sparsemax,view=2&compare=no")
    page.evaluate(
        "((select) => { select.selectedIndex = 1; select.dispatchEvent(new Event('change')); })"
        "(document.getElementById('left-model'))"
    )
    page.settle()
    assert page.evaluate("Number(document.getElementById('left-scores').value)") == 2 + LAYERS * HEADS


@pytest.mark.parametrize("width", [360, 1280, 1900])
def test_lines_join_the_words_with_weight(tab: Tab, model_page: Path, width: int) -> None:
    page = tab(width=width).open(model_page, "#show=lines&left=sparsemax,view=1&right=softmax,view=1")
    page.settle()
    lines = [
        page.evaluate(f"Number(document.getElementById('{side}-figure').dataset.lines)")
        for side in ("left", "right")
    ]
    assert lines == [np.count_nonzero(regmax.sparsemax(SCORES["before", 0, 1])), WORDS * WORDS]
    page.evaluate("document.getElementById('left-figure').focus()")
    page.press("ArrowDown")
    assert page.evaluate("document.getElementById('row-title').innerText") == "Target word 2 of 7: old"
    assert page.evaluate("document.querySelectorAll('b, script').length") == 2


@pytest.mark.parametrize("width", [360, 1280, 1900])
def test_several_heads_of_a_layer_are_drawn_as_lines(tab: Tab, model_page: Path, width: int) -> None:
    page = tab(width=width).open(model_page, "#show=lines&left=sparsemax,view=1&compare=no")
    page.settle()
    count = {head: np.count_nonzero(regmax.sparsemax(SCORES["before", 0, head])) for head in range(HEADS)}
    lines = "Number(document.getElementById('left-figure').dataset.lines)"
    pressed = "[...document.querySelectorAll('#left .chips button')].map((one) => one.ariaPressed)"
    assert page.evaluate(lines) == count[1]
    for click, heads in ((2, {1, 2}), (0, {0, 1, 2}), (1, {0, 2}), (2, {0}), (0, {0})):
        page.evaluate(f"document.querySelectorAll('#left .chips button')[{click}].click()")
        page.settle()
        assert page.evaluate(lines) == sum(count[head] for head in heads)
        assert page.evaluate(pressed) == [str(head in heads).lower() for head in range(HEADS)]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_address_keeps_the_heads_that_are_drawn(tab: Tab, model_page: Path) -> None:
    page = tab().open(model_page, "#show=lines&left=sparsemax,view=1,also=0.2.99.x&compare=no")
    page.settle()
    assert page.evaluate("document.querySelectorAll('#left .chips [aria-pressed=true]').length") == 3
    assert page.wait(lambda: "view=1,also=0.2" in page.evaluate("location.hash"))
    assert page.evaluate("document.querySelectorAll('#left .chips')[0].hidden") is False
    page.evaluate("document.getElementById('show-map').click()")
    page.settle()
    assert page.evaluate("document.querySelectorAll('#left .chips')[0].hidden")


def test_all_heads_are_not_offered_for_one_matrix(tab: Tab, page_file: Path) -> None:
    page = tab().open(page_file)
    assert page.evaluate("document.getElementById('show-heads').hidden")


def test_equal_settings_are_one_panel_and_a_new_mapping_has_its_defaults(tab: Tab, page_file: Path) -> None:
    page = tab().open(page_file, "#left=fusedmax,lam=0.1&right=fusedmax,lam=0.1")
    assert page.evaluate("document.getElementById('right').hidden")
    page.evaluate(
        "((select) => { select.value = 'oscarmax'; select.dispatchEvent(new Event('change')); })"
        "(document.getElementById('left-mapping'))"
    )
    page.settle()
    assert page.evaluate("document.querySelector('#left-lam').nextSibling.value") == "0.01"


def rows_of(word: str, examples: list[dict[str, Any]], setting: Setting) -> dict[str, float]:
    """The mean weights from a target word to source words, over all examples."""
    sums: dict[str, float] = {}
    rows = 0
    for example in examples:
        for token, y in zip(example["target"], setting(np.array(example["scores"])), strict=True):
            if token == word:
                rows += 1
                for source, weight in zip(example["source"], y.tolist(), strict=True):
                    sums[source] = sums.get(source, 0.0) + weight
    return {source: total / rows for source, total in sums.items() if total > 0}


@pytest.fixture(scope="module")
def corpus() -> list[dict[str, Any]]:
    words = ["a", "dog", "cat", "runs", "<i>"]
    made = []
    for _ in range(12):
        source, target = RNG.choice(words, 6).tolist(), RNG.choice(words, 4).tolist()
        made.append({"source": source, "target": target, "scores": RNG.normal(size=(4, 6)).round(3).tolist()})
    return made


RESULT = """[...document.querySelectorAll('#results-list .result')].map((one) =>
  [...one.querySelectorAll('tbody tr')].map(({ children }) =>
    [children[0].textContent, children[1].innerText.trim()]))"""


@pytest.mark.parametrize("query", ["dog", "DÖG", "#2", "#-1"])
def test_a_search_says_what_a_word_attends_to_in_all_examples(
    tab: Tab, corpus: list[dict[str, Any]], tmp_path: Path, query: str
) -> None:
    page = tab().open(
        write_explorer(parse_examples(corpus), tmp_path / "page.html"),
        f"#left=sparsemax&right=softmax&search={query.replace('#', '%23')}",
    )
    page.wait(lambda: page.evaluate("document.getElementById('results').dataset.query") == query)
    title = {"#2": "word number 2", "#-1": "word number 1 from the end"}.get(query, f"the word “{query}”")
    assert page.evaluate("document.getElementById('results-title').textContent") == (
        f"What {title} attends to, in all examples"
    )
    if query.startswith("#"):
        place = {"#2": 1, "#-1": 3}[query]
        asked = [{**one, "target": ["dog" if k == place else "" for k in range(4)]} for one in corpus]
    else:
        asked = corpus
    for shown, mapping in zip(page.evaluate(RESULT), ("sparsemax", "softmax"), strict=True):
        expected = sorted(rows_of("dog", asked, Setting(mapping)).items(), key=lambda pair: -pair[1])
        assert [word for word, _ in shown] == [word for word, _ in expected]
        np.testing.assert_allclose([float(y) for _, y in shown], [y for _, y in expected], atol=6e-5)
    page.evaluate("document.querySelector('#results-list button').click()")
    page.settle()
    assert page.evaluate("document.querySelectorAll('#numbers tr.marked').length") == 1
