"""The explorer on paper: every map is whole, in the light colours, and nothing lies over anything else."""

from __future__ import annotations

import base64
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from browser import Page

from regmax.plots import parse_examples, write_explorer

PAPER = 718  # pixels between the margins of A4
BOXES = """['.legend', '#left', '#right', '#detail'].map((part) => {
  const { left, top, right, bottom } = document.querySelector(part).getBoundingClientRect();
  return [left, top, right, bottom];
})"""


@pytest.mark.parametrize(
    ("width", "show", "size"),
    [(1280, show, size) for show in ("map", "lines") for size in (8, 30, 300)]
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
    if show == "map":  # on one page: else the first page would hold the title only
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
    page.call(
        "Emulation.setDeviceMetricsOverride", width=PAPER, height=1000, deviceScaleFactor=1, mobile=False
    )
    boxes = page.evaluate(BOXES)
    assert all(left >= 0 and right <= PAPER for left, _, right, _ in boxes)
    for (_, _, _, bottom), (_, top, _, _) in pairwise(boxes):
        assert bottom <= top


def test_a_page_prints_to_pdf(tab: Callable[..., Page], page_file: Path) -> None:
    page = tab(dark=True).open(page_file)
    content = base64.b64decode(page.call("Page.printToPDF", printBackground=True)["data"])
    assert content.startswith(b"%PDF")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
