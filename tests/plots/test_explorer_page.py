"""The interactive page in a real browser: it shows the library's numbers, without errors or requests."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Page
from hostile import HOSTILE

from regmax.plots import Setting, explorer_page, parse_examples, write_explorer

Tab = Callable[..., Page]


def shown_weights(page: Page, side: str = "left") -> np.ndarray:
    rows = page.evaluate(
        f"[...document.querySelectorAll('#{side} g[role=row]')].map((row) =>"
        " [...row.querySelectorAll('.cell')].map((cell) => Number(cell.dataset.weight)))"
    )
    return np.array(rows)


def shown_setting(page: Page, side: str = "left") -> Setting:
    """The mapping and the strengths that the controls show."""
    mapping = page.evaluate(f"document.getElementById('{side}-mapping').value")
    pairs = page.evaluate(
        f"[...document.querySelectorAll('#{side} .slider:not([hidden])')].map((slider) =>"
        " [slider.querySelector('[type=range]').id.split('-')[1], Number(slider.querySelector('[type=number]').value)])"
    )
    return Setting(mapping, tuple(map(tuple, pairs)))


def assert_library_values(page: Page, scores: Any, side: str = "left") -> None:
    expected = np.nan_to_num(shown_setting(page, side)(np.array(scores, dtype=float)))
    shown = shown_weights(page, side)
    np.testing.assert_allclose(shown, expected, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(shown == 0, expected == 0)
    np.testing.assert_array_equal(np.diff(shown) == 0, np.diff(expected) == 0)


def choose(page: Page, control: str, value: Any, event: str = "change") -> None:
    page.evaluate(
        f"((control) => {{ control.value = {json.dumps(value)}; control.dispatchEvent(new Event('{event}')); }})"
        f"(document.getElementById('{control}'))"
    )
    page.settle()


@pytest.mark.parametrize("mapping", ["softmax", "sparsemax", "fusedmax", "oscarmax", "sqpnormmax", "entmax"])
def test_a_mapping_and_its_sliders_show_the_librarys_weights(
    tab: Tab, page_file: Path, content: dict[str, Any], mapping: str
) -> None:
    page = tab().open(page_file)
    scores = content["examples"][0]["scores"]
    choose(page, "left-mapping", mapping)
    before = shown_weights(page)
    assert_library_values(page, scores)
    for name in shown_setting(page).parameters:
        for position in (0.2, 0.63):
            choose(page, f"left-{name}", position, "input")
            assert_library_values(page, scores)
    assert not np.array_equal(before, shown_weights(page))


def test_a_slider_moves_by_keys(tab: Tab, page_file: Path, content: dict[str, Any]) -> None:
    page = tab().open(page_file)
    page.evaluate("document.getElementById('left-lam').focus()")
    seen = []
    for key in ("ArrowRight", "ArrowRight", "PageUp", "ArrowLeft"):
        page.press(key)
        seen.append(shown_setting(page).parameters["lam"])
        assert_library_values(page, content["examples"][0]["scores"])
    assert 0.1 < seen[0] < seen[1] < seen[2]
    assert seen[3] < seen[2]


def test_equal_neighbours_are_one_rectangle_and_zeros_are_grey(tab: Tab, page_file: Path) -> None:
    page = tab().open(page_file, "#left=fusedmax,lam=0.3")
    rectangles = page.evaluate(
        "[...document.querySelectorAll('#left g[role=row]')].map((row) =>"
        " [...row.querySelectorAll('.run')].map((run) =>"
        " [Number(run.dataset.start), Number(run.dataset.stop), run.getAttribute('fill')]))"
    )
    zero = page.evaluate("JSON.parse(document.getElementById('data').textContent).palette.light.zero")
    for y, row in zip(shown_weights(page), rectangles, strict=True):
        borders = [0, *(np.flatnonzero(np.diff(y)) + 1), len(y)]
        assert [(start, stop) for start, stop, _ in row] == list(pairwise(borders))
        assert [(colour == zero) for _, _, colour in row] == [y[start] == 0 for start, _, _ in row]


def test_hovering_shows_the_numbers(tab: Tab, page_file: Path) -> None:
    page = tab().open(page_file)
    page.hover("#left-1-2")
    y = shown_weights(page)[1]
    tip = page.evaluate("document.getElementById('tip').innerText")
    assert "y → c" in tip
    assert f"{np.count_nonzero(y)} of 8 words" in tip
    title = page.evaluate("document.getElementById('row-title').innerText")
    assert title == "Target word 2 of 3: y"
    table = page.evaluate(
        "[...document.querySelectorAll('#numbers tbody tr')].map((row) => row.innerText.split('\\t'))"
    )
    shown = [float(row[2]) for row in table]
    np.testing.assert_allclose(shown, np.sort(y)[::-1], atol=5e-5)
    assert [row[2].strip() == "0" for row in table] == (np.sort(y)[::-1] == 0).tolist()
    page.hover("h1")
    assert page.evaluate("document.getElementById('tip').hidden")
    assert page.evaluate("document.getElementById('row-title').innerText") == "Target word 1 of 3: x"


def test_hostile_tokens_are_shown_as_text(tab: Tab, page_file: Path, content: dict[str, Any]) -> None:
    page = tab().open(page_file, "#example=1")
    labels = page.evaluate(
        "[...document.querySelectorAll('#left text[data-column]')].map((text) => text.textContent)"
    )
    assert labels[2].startswith(HOSTILE[2][:10])
    assert [labels[1], *labels[3:5]] == [HOSTILE[1], *HOSTILE[3:5]]
    cells = page.evaluate(
        "[...document.querySelectorAll('#numbers tbody th')].map((cell) => cell.textContent)"
    )
    assert sorted(cells) == sorted([*HOSTILE[:-1], "␣", "plain"])
    page.hover("#left-0-0")
    assert HOSTILE[0] in page.evaluate("document.getElementById('tip').innerText")
    assert page.evaluate("document.querySelectorAll('b, img, script').length") == 2
    assert page.evaluate("document.querySelector('h1').textContent") == content["title"]
    assert page.evaluate("document.title") == content["title"]


def test_the_address_keeps_what_is_seen(tab: Tab, page_file: Path) -> None:
    page = tab().open(page_file)
    choose(page, "left-mapping", "oscarmax")
    choose(page, "left-lam", 0.4, "input")
    page.evaluate("document.getElementById('next').click()")
    page.settle()
    fragment = page.wait(
        lambda: next(filter(lambda h: "example=1" in h, [page.evaluate("location.hash")]), None)
    )
    again = tab().open(page_file, fragment)
    assert shown_setting(again) == shown_setting(page)
    np.testing.assert_array_equal(shown_weights(again), shown_weights(page))
    nonsense = tab().open(page_file, "#example=99&row=-4&left=nosuchmax,lam=x,p=9&right=,,=&compare=maybe")
    assert shown_setting(nonsense).mapping == "fusedmax"
    assert shown_setting(nonsense, "right").mapping == "softmax"


def test_keys_step_through_the_words_and_are_announced(tab: Tab, page_file: Path) -> None:
    page = tab().open(page_file)
    page.evaluate("document.getElementById('left-figure').focus()")
    page.press("ArrowDown")
    page.press("ArrowRight")
    active = page.evaluate("document.getElementById('left-figure').getAttribute('aria-activedescendant')")
    assert active == "left-1-0"
    spoken = page.evaluate("document.getElementById('announcement').textContent")
    assert spoken.startswith("y: ")
    assert "of 8 words" in spoken
    page.press("n")
    assert page.evaluate("document.querySelector('#list [aria-current]').textContent").startswith(HOSTILE[0])
    page.press("/")
    assert page.evaluate("document.activeElement.id") == "search"


def test_the_skip_link_moves_the_focus_and_keeps_the_state(tab: Tab, page_file: Path) -> None:
    page = tab().open(page_file, "#left=oscarmax,lam=0.3")
    page.evaluate("document.getElementById('skip').click()")
    page.settle()
    assert page.evaluate("document.activeElement.id") == "stage"
    assert shown_setting(page).mapping == "oscarmax"


def test_one_mapping_alone_and_the_other_colours(tab: Tab, page_file: Path) -> None:
    page = tab().open(page_file)
    light = page.evaluate("document.querySelector('#left .run').getAttribute('fill')")
    page.evaluate("document.getElementById('compare').click(); document.getElementById('theme').click()")
    page.settle()
    assert page.evaluate("document.getElementById('right').hidden")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("document.querySelector('#left .run').getAttribute('fill')") != light
    assert page.evaluate("document.querySelectorAll('#numbers thead th').length") == 3


def test_searching_folds_case_and_accents(tab: Tab, page_file: Path) -> None:
    page = tab().open(page_file)
    choose(page, "search", "ELAN", "input")
    assert page.evaluate("[...document.querySelectorAll('#list button')].map((one) => one.textContent)") == [
        "Élan"
    ]
    assert page.evaluate("document.getElementById('found').textContent") == "1 of 4 examples"


def test_masked_positions_are_deleted_and_views_bring_their_mapping(
    tab: Tab, page_file: Path, content: dict[str, Any]
) -> None:
    page = tab().open(page_file, "#example=2&left=fusedmax,view=1&right=softmax,view=0")
    causal = content["examples"][2]["views"][0]["scores"]
    scores = [[-np.inf if score is None else score for score in row] for row in causal]
    assert_library_values(page, scores, "right")
    assert page.evaluate("document.querySelectorAll('#right .run').length") == 10
    choose(page, "left-scores", "0")
    assert shown_setting(page).mapping == "oscarmax"
    assert shown_setting(page).parameters["lam"] == 0.2
    assert_library_values(page, scores)


def test_a_source_that_runs_right_to_left_is_laid_out_so(tab: Tab, page_file: Path) -> None:
    page = tab().open(page_file, "#example=3")
    places = page.evaluate(
        "[0, 1, 2].map((j) => Number(document.getElementById(`left-0-${j}`).getAttribute('x')))"
    )
    assert places == sorted(places, reverse=True)


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_a_heat_map_can_be_downloaded(tab: Tab, page_file: Path, tmp_path: Path, kind: str) -> None:
    page = tab(dark=True).open(page_file)
    page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    page.evaluate(f"document.querySelectorAll('#left .saves button')[{['svg', 'png'].index(kind)}].click()")
    file = tmp_path / f"attention-1-fusedmax.{kind}"
    page.wait(lambda: file.exists() and file.stat().st_size)
    if kind == "png":
        assert file.read_bytes().startswith(b"\x89PNG")
        return
    drawing = ElementTree.parse(file).getroot()
    runs = [rect for rect in drawing.iter("{http://www.w3.org/2000/svg}rect") if rect.get("class") == "run"]
    assert len(runs) == page.evaluate("document.querySelectorAll('#left .run').length")


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_scrolls_only_downwards(tab: Tab, page_file: Path, dark: bool) -> None:
    page = tab(width=360, height=740, dark=dark).open(page_file, "#example=1")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("document.documentElement.dataset.theme") == ("dark" if dark else "light")


def test_every_control_has_a_name(tab: Tab, page_file: Path) -> None:
    page = tab().open(page_file, "#example=2")
    page.call("Accessibility.enable")
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    roles = {
        "button",
        "combobox",
        "slider",
        "spinbutton",
        "searchbox",
        "checkbox",
        "grid",
        "gridcell",
        "link",
    }
    named = [node for node in nodes if node.get("role", {}).get("value") in roles]
    assert {node["role"]["value"] for node in named} >= roles - {"link"}
    assert [node for node in named if not node["name"]["value"].strip()] == []


def test_a_page_of_two_hundred_sentences_is_small_and_opens(tab: Tab, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    words = [f"word{k}" for k in range(30)]
    many = [
        {"source": words, "target": words[:20], "scores": rng.normal(size=(20, 30)).tolist()}
        for _ in range(200)
    ]
    examples = parse_examples(many)
    path = write_explorer(examples, tmp_path / "many.html")
    data = explorer_page(examples).split('id="data">')[1].split("</script>")[0]
    assert path.stat().st_size - len(data.encode()) < 120_000
    page = tab().open(path)
    assert page.evaluate("document.querySelectorAll('#list button').length") == 200
    assert len(shown_weights(page)) == 20
