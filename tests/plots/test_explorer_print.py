"""The explorer on paper: every map is whole, in the light colours, and nothing lies over anything else."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from browser import Page

from regmax.plots import parse_examples, write_explorer, write_report

PAPER = 718  # pixels between the margins of A4
BOXES = """['.legend', '#left', '#right', '#detail'].map((part) => {
  const { left, top, right, bottom } = document.querySelector(part).getBoundingClientRect();
  return [left, top, right, bottom];
})"""


@pytest.mark.parametrize(
    ("width", "show", "size"),
    [(1280, show, size) for show in ("map", "lines") for size in (8, 30, 60, 300)]
    + [(width, "map", 60) for width in (360, 1900)],
)
def test_maps_are_whole_and_nothing_overlaps(
    tab: Callable[..., Page], tmp_path: Path, size: int, show: str, width: int
) -> None:
    words = [f"word{k}" for k in range(size)]
    scores = np.random.default_rng(0).normal(size=(size, size)).round(3).tolist()
    path = write_explorer(
        parse_examples([{"source": words, "target": words, "scores": scores}]), tmp_path / "page.html"
    )
    page = tab(width=width, dark=True).open(path, f"#show={show}")
    # What the browser does: the page changes at the event, and is laid out at the paper's width.
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.call("Emulation.setEmulatedMedia", media="print")
    page.call(
        "Emulation.setDeviceMetricsOverride", width=PAPER, height=1000, deviceScaleFactor=1, mobile=False
    )
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    boxes = page.evaluate(BOXES)
    assert all(left >= 0 and right <= PAPER for left, _, right, _ in boxes)
    if show == "map" or size <= 60:  # on one page: else the first page would hold the title only
        assert all(bottom - top < 850 for _, top, _, bottom in boxes[1:3])
    for (_, _, _, bottom), (_, top, _, _) in pairwise(boxes):
        assert bottom <= top
    inside = page.evaluate(
        "[...document.querySelectorAll('.figure')].map((figure) =>"
        " figure.scrollWidth <= figure.clientWidth + 1 && figure.scrollHeight <= figure.clientHeight + 1)"
    )
    assert inside == [True, True]
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.parametrize("width", [360, 1280, 1900])
def test_all_heads_are_on_paper_at_once(tab: Callable[..., Page], tmp_path: Path, width: int) -> None:
    words = [f"word{k}" for k in range(60)]
    rng = np.random.default_rng(0)
    views = [
        {"name": f"head {k}", "layer": f"layer {k // 3}", "scores": rng.normal(size=(60, 60)).tolist()}
        for k in range(12)
    ]
    content = [{"source": words, "target": words, "views": views}]
    page = tab(width=width, dark=True).open(
        write_explorer(parse_examples(content), tmp_path / "page.html"), "#show=heads"
    )
    page.call("Emulation.setEmulatedMedia", media="print")
    # In one step, as the printer: nothing that the page does later is printed.
    captions = page.evaluate(
        "(dispatchEvent(new Event('beforeprint')), [...document.querySelectorAll('.head .count')].map("
        "(one) => one.textContent))"
    )
    assert len(captions) == 24
    assert "…" not in captions
    assert page.evaluate(
        "[...document.querySelectorAll('.head .count')].every((one) => one.scrollWidth <= one.clientWidth)"
    )
    page.call(
        "Emulation.setDeviceMetricsOverride", width=PAPER, height=1000, deviceScaleFactor=1, mobile=False
    )
    boxes = page.evaluate(BOXES)
    assert all(left >= 0 and right <= PAPER for left, _, right, _ in boxes)
    for (_, _, _, bottom), (_, top, _, _) in pairwise(boxes):
        assert bottom <= top


def test_a_page_with_many_heads_is_not_nested_in_the_file(tab: Callable[..., Page], tmp_path: Path) -> None:
    """Readers of PDF give up after about 30 nested forms, and show only what follows them."""
    words = [f"word{k}" for k in range(4)]
    views = [{"name": f"head {k}", "layer": "one", "scores": np.eye(4).tolist()} for k in range(40)]
    content = [{"source": words, "target": words, "views": views}]
    page = tab().open(write_explorer(parse_examples(content), tmp_path / "page.html"), "#show=heads")
    file = base64.b64decode(page.call("Page.printToPDF", printBackground=True)["data"])
    assert len(re.findall(rb"/Subtype\s*/Form", file)) < 8


def test_the_result_of_a_search_is_on_paper(tab: Callable[..., Page], tmp_path: Path) -> None:
    words = ["the", "ship", "is", "seen"]
    content = [{"source": words, "target": words, "scores": np.eye(4).tolist()}] * 300
    page = tab().open(write_explorer(parse_examples(content), tmp_path / "page.html"))
    found = page.evaluate(
        "((search) => (search.value = 'ship', search.dispatchEvent(new Event('input')),"
        " dispatchEvent(new Event('beforeprint')), document.getElementById('results-list').textContent))"
        "(document.getElementById('search'))"
    )
    assert "300 occurrences" in found


@pytest.mark.parametrize("width", [360, 1280, 1900])
def test_a_report_is_whole_on_paper(tab: Callable[..., Page], tmp_path: Path, width: int) -> None:
    config = {"mapping": "fusedmax", "gamma": 1.0, "lam": 0.2, "p": 1.5}
    example = {"source": ["a", "b"], "target": ["c"], "scores": [[1.0, 0.5]]}
    history = [{"epoch": e, "dev loss": 1 / e, "train loss": 2 / e} for e in (1, 2)]
    for name, value in {"config": config, "examples": [example], "history": history}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(value))
    cells = tuple(SimpleNamespace(mean=k * 1.5, deviation=0.25, best=False, digits=2) for k in range(7))
    columns = ("zeros %", "support", "segments", "segment length", "clusters", "cluster size", "entropy")
    table = SimpleNamespace(
        title="attention", columns=columns, rows=(("oscarmax, gamma=0.5, lam=0.1", cells),)
    )
    page = tab(width=width, dark=True).open(
        write_report([tmp_path], tmp_path / "report.html", tables=[table])
    )
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.call("Emulation.setEmulatedMedia", media="print")
    page.call(
        "Emulation.setDeviceMetricsOverride", width=PAPER, height=1000, deviceScaleFactor=1, mobile=False
    )
    rights = page.evaluate(
        "[...document.querySelectorAll('.report table, .charts svg')].map((one) =>"
        " one.getBoundingClientRect().right)"
    )
    assert len(rights) == 3
    assert max(rights) <= PAPER


def test_a_page_prints_to_pdf(tab: Callable[..., Page], page_file: Path) -> None:
    page = tab(dark=True).open(page_file)
    content = base64.b64decode(page.call("Page.printToPDF", printBackground=True)["data"])
    assert content.startswith(b"%PDF")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
