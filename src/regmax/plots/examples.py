"""Sentences with their attention scores, and the JSON file that holds them (docs/explorer-format.md)."""

import json
import math
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regmax.files import is_text, read_json
from regmax.plots.settings import Setting
from regmax.plots.text import JOINER, readable, shortened

FORMAT = "regmax-examples/1"
Scores = NDArray[np.float64]


@dataclass(frozen=True)
class View:
    """One matrix of scores over the source: a head, or one of several models with its own target.

    Example:
        >>> view = View("head 1", ("der", "Hund"), np.array([[2.0, 0.0], [0.0, 1.0]]), Setting("sparsemax"))
        >>> view.mapping(view.scores).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """

    name: str
    target: tuple[str, ...]
    scores: Scores  # (target, source); -inf is deleted
    mapping: Setting | None = None  # the mapping that the model was trained with
    layer: str = ""  # of a head: heads of one layer are a row of the explorer's "All heads"
    model: str = ""  # of several models, which the explorer compares
    recorded: bool = False  # what `mapping` makes of the scores are weights that a model computed


@dataclass(frozen=True)
class Example:
    """A source sentence and one or more views of it.

    Example:
        >>> Example(("the", "dog"), (View("", ("der", "Hund"), np.eye(2)),)).title
        'the dog'
    """

    source: tuple[str, ...]
    views: tuple[View, ...]
    name: str = ""
    note: str = ""

    @property
    def title(self) -> str:
        """The name, or the source sentence."""
        return self.name or " ".join(self.source).replace(f" {JOINER}", "")


@dataclass(frozen=True)
class Examples:
    """The content of a page or a picture; `start` are the mappings, and `show` the picture, that are shown first.

    Example:
        >>> example = Example(("the", "dog"), (View("", ("der", "Hund"), np.eye(2)),))
        >>> [setting.label for setting in Examples((example,)).start]
        ['fusedmax, λ = 0.1', 'softmax']
    """

    examples: tuple[Example, ...]
    title: str = "Attention weights"
    start: tuple[Setting, Setting] = (Setting("fusedmax"), Setting("softmax"))
    show: str = "map"  # or "lines", or "heads"


class FormatError(ValueError):
    """A file does not have the format of docs/explorer-format.md; the message names the place.

    Example:
        >>> parse_examples([{"source": ["a", "b"], "target": ["c"], "scores": [[1.0]]}])
        Traceback (most recent call last):
            ...
        regmax.plots.examples.FormatError: `examples[0].scores[0]` must have a score for each of 2 source tokens. Got 1.
    """


def read_examples(path: Path | str) -> Examples:
    """Read a JSON file of sentences and scores.

    Raises:
        FormatError: the message names the place in the file and the requirement.

    Example:
        >>> import tempfile
        >>> one = {"source": ["the", "dog"], "target": ["Hund"], "scores": [[0.1, 2.0]]}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "scores.json")
        ...     _ = path.write_text(json.dumps([one]))
        ...     print(read_examples(path).examples[0].title)
        the dog
    """
    try:
        content = read_json(path)
    except ValueError as error:
        raise FormatError(str(error)) from None
    try:
        return parse_examples(content)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None


def demo_examples() -> Examples:
    """The sentences that come with regmax.

    Example:
        >>> demo_examples().examples[0].title
        'Translation: the lighthouse keeper'
    """
    return parse_examples(
        json.loads(files("regmax.plots.explorer").joinpath("demo.json").read_text(encoding="utf-8"))
    )


def parse_examples(content: Any) -> Examples:
    """Check and convert the content of a JSON file.

    Example:
        >>> one = {"source": ["a", "b"], "target": ["c"], "scores": [[1, None]]}
        >>> parse_examples({"examples": [one]}).examples[0].views[0].scores.tolist()
        [[1.0, -inf]]
    """
    content = {"examples": content} if isinstance(content, list) else _dict(content, "the file")
    if content.get("format", FORMAT) != FORMAT:
        raise FormatError(f"`format` must be {FORMAT!r}. Got {_short(content['format'])}.")
    examples = _list(content.get("examples"), "examples")
    if not examples:
        raise FormatError("`examples` is empty: there is nothing to show.")
    start = [
        _setting(text, f"mappings[{k}]")
        for k, text in enumerate(_list(content.get("mappings", []), "mappings"))
    ]
    left, right, *_ = [*start, *Examples.start[len(start) :]]
    return Examples(
        tuple(_example(one, f"examples[{i}]") for i, one in enumerate(examples)),
        _text(content.get("title", Examples.title), "title"),
        (left, right),
    )


def _example(content: Any, place: str) -> Example:
    content = _dict(content, place)
    source = _tokens(content.get("source"), f"{place}.source")
    views = content.get("views")
    if views is None:
        parsed = [_view(content, place, source, {})]
    else:
        listed = _list(views, f"{place}.views")
        parsed = [
            _view(_dict(v, place), f"{place}.views[{k}]", source, content) for k, v in enumerate(listed)
        ]
    if not parsed:
        raise FormatError(f"`{place}.views` is empty: an example needs scores.")
    name, note = (_text(content.get(key, ""), f"{place}.{key}") for key in ("name", "note"))
    return Example(tuple(readable(source)), tuple(parsed), name, note)


def _view(content: dict[str, Any], place: str, source: list[str], example: dict[str, Any]) -> View:
    target = _tokens(content.get("target", example.get("target")), f"{place}.target")
    rows = _list(content.get("scores"), f"{place}.scores")
    if len(rows) != len(target):
        raise FormatError(
            f"`{place}.scores` must have a row for each of {len(target)} target tokens. Got {len(rows)}."
        )
    scores = [_row(row, f"{place}.scores[{i}]", len(source)) for i, row in enumerate(rows)]
    mapping = None if content.get("mapping") is None else _setting(content["mapping"], f"{place}.mapping")
    name = _text(content.get("name", ""), f"{place}.name") if example else ""
    layer, model = (_text(content.get(key, ""), f"{place}.{key}") for key in ("layer", "model"))
    name = name or place.rpartition(".")[2]
    return View(name, tuple(readable(target)), np.array(scores, np.float64), mapping, layer, model)


def _row(row: Any, place: str, d: int) -> list[float]:
    numbers = _list(row, place)
    if len(numbers) != d:
        raise FormatError(f"`{place}` must have a score for each of {d} source tokens. Got {len(numbers)}.")
    return [_score(number, f"{place}[{j}]") for j, number in enumerate(numbers)]


def _score(number: Any, place: str) -> float:
    """A number; null and -Infinity delete the position."""
    if number is None:
        return -math.inf
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise FormatError(f"`{place}` must be a number, or null if it is masked. Got {_short(number)}.")
    try:
        score = float(number)
    except OverflowError:  # an integer of hundreds of digits
        score = math.inf
    if math.isnan(score) or score == math.inf:
        raise FormatError(f"`{place}` must be finite, or null if it is masked. Got {score}.")
    return score


def _tokens(value: Any, place: str) -> list[str]:
    tokens = _list(value, place)
    if not tokens:
        raise FormatError(f"`{place}` is empty: it needs at least one token.")
    return [_text(token, f"{place}[{k}]") for k, token in enumerate(tokens)]


def _setting(value: Any, place: str) -> Setting:
    try:
        return Setting.parse(_text(value, place))
    except ValueError as error:
        raise FormatError(f"`{place}`: {error}") from None


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise FormatError(f"`{place}` must be a string. Got {_short(value)}.")
    if not is_text(value):
        raise FormatError(f"`{place}` must be Unicode text. Got half of a surrogate pair in {value!r}.")
    return value


def _short(value: Any) -> str:
    return shortened(reprlib.repr(value), 60)


def _list(value: Any, place: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise FormatError(
            f"`{place}` must be a list. Got {'nothing' if value is None else type(value).__name__}."
        )
    return value


def _dict(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FormatError(f"`{place}` must be an object. Got {type(value).__name__}.")
    return value
