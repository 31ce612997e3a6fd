"""One self-contained HTML file for exploring the attention weights of sentences.

The page is assembled from the files of this folder: a template, style sheets, and scripts, which are concatenated in
the order of `SCRIPTS`. The page loads nothing else; its content security policy forbids it.
"""

import base64
import hashlib
import html
import json
import re
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from regmax.files import write_atomically
from regmax.mappings import MAPPINGS
from regmax.plots.examples import Example, Examples, View
from regmax.plots.settings import Setting

STYLES = ("base.css", "figure.css", "weights.css", "report.css", "page.css", "print.css")
SCRIPTS = (
    "mappings.js",
    "data.js",
    "structure.js",
    "state.js",
    "weights.js",
    "layout.js",
    "heatmap.js",
    "canvas.js",
    "sheet.js",
    "lines.js",
    "heads.js",
    "panel.js",
    "detail.js",
    "search.js",
    "download.js",
    "page.js",
    "events.js",
)
_RECORDED = "recorded"  # the page's name of weights that a model computed
_PACKED = 400  # scores: with more, a view's are written in binary


def write_explorer(examples: Examples, path: Path | str) -> Path:
    """Write the interactive page of `examples` to the file `path`, and return it.

    Example:
        >>> import tempfile
        >>> from regmax.plots import parse_examples, write_explorer
        >>> one = {"source": ["a", "b"], "target": ["c"], "scores": [[1.0, 0.5]]}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = write_explorer(parse_examples([one]), folder + "/page.html")
        ...     page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
        True
    """
    write_atomically(path, explorer_page(examples))
    return Path(path)


def explorer_page(examples: Examples, *, before: str = "") -> str:
    """The page as a string; `before` is trusted HTML above the explorer, such as a report's tables.

    Example:
        >>> from regmax.plots import demo_examples, explorer_page
        >>> explorer_page(demo_examples(), before="<p>Hello</p>").count("<p>Hello</p>")
        1
    """
    style = "\n".join(map(_asset, STYLES))
    script = "(() => {\n" + "\n".join(map(_script, SCRIPTS)) + "})();\n"
    # Only these exact texts may run: an injected script or style would have another hash.
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data: blob:"
    return Template(_asset("template.html")).substitute(
        title=html.escape(examples.title),
        policy=html.escape(policy),
        style=style,
        script=script,
        data=_embedded(_content(examples)),
        before=before,
    )


def _asset(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def _script(name: str) -> str:
    """A script without the lines that are comments: a tenth of every page would be comments."""
    return re.sub(r"^\s*//.*\n", "", _asset(name), flags=re.MULTILINE)


def palette() -> dict[str, Any]:
    """The colours that the page and the figures share, light and dark."""
    colours: dict[str, Any] = json.loads(_asset("palette.json"))
    return colours


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _embedded(content: Any) -> str:
    """JSON in which no token can end the enclosing script element."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _content(examples: Examples) -> dict[str, Any]:
    listed = examples.examples
    return {
        "start": [_start(setting, listed[0], side) for side, setting in enumerate(examples.start)],
        "show": examples.show,
        "strengths": {row.name: row.strengths for row in MAPPINGS.values() if row.javascript},
        "palette": palette(),
        "examples": [_example(example, name) for example, name in zip(listed, _names(listed), strict=True)],
    }


def _start(setting: Setting, first: Example, side: int) -> str:
    """The initial state of a panel: a mapping, and the view of the model trained with it, if there is one.

    With several models, the panels show two of them.
    """
    _check_known(setting)
    models = list(dict.fromkeys(view.model for view in first.views))
    model = models[min(side, len(models) - 1)]
    own = [k for k, view in enumerate(first.views) if view.model == model]
    trained = [k for k in own if first.views[k].mapping == setting]
    number = [*trained, *own][0]
    chosen = _RECORDED if trained and first.views[number].recorded else str(setting)
    return f"{chosen},view={number}"


def _check_known(setting: Setting) -> None:
    if not setting.row.javascript:
        raise ValueError(
            f"`explorer_page(examples)` computes the weights in the browser. Got {setting.mapping}, which it does not "
            "know: draw it with `attention_heatmap`."
        )


def _names(examples: Sequence[Example]) -> list[str]:
    """The examples' titles, numbered where one occurs again: entries of a menu must differ."""
    seen: Counter[str] = Counter()
    names = []
    for example in examples:
        seen[example.title] += 1
        names.append(
            example.title if seen[example.title] == 1 else f"{example.title} ({seen[example.title]})"
        )
    return names


def _example(example: Example, name: str) -> dict[str, Any]:
    views = [_view(view) for view in example.views]
    return {"name": name, "note": example.note, "source": example.source, "views": views}


def _view(view: View) -> dict[str, Any]:
    if view.mapping is not None:
        _check_known(view.mapping)
    mapping = None if view.mapping is None else str(view.mapping)
    content = {"name": view.name, "layer": view.layer, "model": view.model, "target": view.target}
    if view.recorded:
        return {**content, "scores": _scores(view), "mapping": _RECORDED, "recorded": mapping}
    return {**content, "scores": _scores(view), "mapping": mapping}


def _scores(view: View) -> Any:
    """Rows with None for deleted scores; those of a large view as base64 of little-endian numbers, with -inf."""
    if view.scores.size > _PACKED:
        kind = "float32" if np.array_equal(view.scores.astype(np.float32), view.scores) else "float64"
        content = np.ascontiguousarray(view.scores, {"float32": "<f4", "float64": "<f8"}[kind]).tobytes()
        return {"type": kind, "base64": base64.b64encode(content).decode()}
    deleted = np.isneginf(view.scores)
    return [
        [None if gone else score for score, gone in zip(*row, strict=True)]
        for row in zip(view.scores.tolist(), deleted.tolist(), strict=True)
    ]
