"""Node and Chromium for the tests of the interactive page: without them the tests are skipped, except on CI."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser, Page, find_chromium
from hostile import HOSTILE

from regmax.plots import parse_examples, write_explorer


def needed(program: str | None, name: str) -> str:
    if program is None:
        message = f"{name} is not installed"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    return program


@pytest.fixture(scope="session")
def node() -> str:
    return needed(shutil.which("node"), "node")


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    chromium = needed(find_chromium(), "chromium")
    started = Browser(chromium, tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture
def tab(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open tabs; at the end no tab may have had an error, a dialog or a request."""
    pages: list[Page] = []

    def make(**options: Any) -> Page:
        pages.append(Page(browser, **options))
        return pages[-1]

    yield make
    faults = [fault for page in pages for fault in page.faults()]
    for page in pages:
        page.close()
    assert faults == []


@pytest.fixture(scope="session")
def content() -> dict[str, Any]:
    """Examples with hostile and long tokens, masks, views and other scripts."""
    rng = np.random.default_rng(0)

    def scores(n: int, d: int) -> list[list[float]]:
        return rng.normal(size=(n, d)).round(3).tolist()

    causal = [
        [score if j <= i else None for j, score in enumerate(row)] for i, row in enumerate(scores(4, 4))
    ]
    words = ["a", "ship", "is", "seen"]
    return {
        "title": "Title </title><script>alert(0)</script>",
        "mappings": ["fusedmax,lam=0.1", "softmax"],
        "examples": [
            {"name": "plain", "source": list("abcdefgh"), "target": list("xyz"), "scores": scores(3, 8)},
            {"source": [*HOSTILE, "plain"], "target": list(HOSTILE[:2]), "scores": scores(2, 7)},
            {"name": "Élan", "source": words, "views": [
                {"name": "causal", "target": words, "scores": causal, "mapping": "oscarmax,lam=0.2"},
                {"name": "short", "target": ["one"], "scores": scores(1, 4)},
            ]},
            {"source": ["שלום", "עולם", "קטן"], "target": ["hello", "world"], "scores": scores(2, 3)},
        ],
    }  # fmt: skip


@pytest.fixture(scope="session")
def page_file(content: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_explorer(parse_examples(content), tmp_path_factory.mktemp("page") / "page.html")
