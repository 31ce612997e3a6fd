"""The explorer inside a notebook: the page in a frame, without a server or a network."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from regmax.plots.examples import Examples, demo_examples, parse_examples, read_examples
from regmax.plots.explorer import explorer_page, write_explorer
from regmax.plots.recorded import record_examples

_HEIGHT = 760  # pixels


class Explorer:
    """The explorer's page; a notebook shows it as the value of a cell.

    Example:
        >>> from regmax.plots import demo_examples
        >>> Explorer(demo_examples())
        Explorer('Sparse and structured attention', 8 examples)
    """

    def __init__(self, examples: Examples, *, height: int = _HEIGHT) -> None:
        self.examples = examples
        self.height = height

    def __repr__(self) -> str:
        count = len(self.examples.examples)
        return f"Explorer({self.examples.title!r}, {count} example{'' if count == 1 else 's'})"

    def _repr_html_(self) -> str:
        # The frame has no access to the notebook: scripts may run in it, and pictures be downloaded.
        page = escape(explorer_page(self.examples))
        return (
            f'<iframe srcdoc="{page}" sandbox="allow-scripts allow-downloads" title="{escape(self.examples.title)}" '
            f'width="100%" height="{self.height}" style="border: 0"></iframe>'
        )

    def save(self, path: Path | str) -> Path:
        """Write the page to a file, as `write_explorer` does."""
        return write_explorer(self.examples, path)


def explore(
    what: "Examples | Mapping[str, Any] | Sequence[Any] | Path | str | None" = None,
    source: Sequence[str] | None = None,
    target: Sequence[str] | None = None,
    *,
    height: int = _HEIGHT,
) -> Explorer:
    """The explorer of attention weights in a notebook.

    Args:
        what: examples; a record of `regmax.record_attention`; the content of a JSON file (docs/explorer-format.md) or
            its path. None shows the sentences that come with regmax.
        source: for a record, the tokens that are attended to; by default they are numbered.
        target: for a record, the tokens that attend; by default `source`, if there are as many.
        height: of the frame in the notebook, in pixels.

    Returns:
        The page, which a notebook shows; `.save(path)` writes it to a file.

    Example:
        >>> explore([{"source": ["the", "dog"], "target": ["Hund"], "scores": [[0.1, 2.0]]}])
        Explorer('Attention weights', 1 example)
    """
    return Explorer(_examples(what, source, target), height=height)


def _examples(what: Any, source: Sequence[str] | None, target: Sequence[str] | None) -> Examples:
    if what is None:
        return demo_examples()
    if isinstance(what, Examples):
        return what
    if hasattr(what, "dense"):  # an AttentionRecord
        return record_examples(what, *_numbered(what, source, target))
    if isinstance(what, str | Path):
        return read_examples(what)
    if isinstance(what, list | dict):
        return parse_examples(what)
    raise TypeError(
        "`explore(what)` shows examples, a record of `record_attention`, the content of a JSON file or its path. "
        f"Got {type(what).__name__}."
    )


def _numbered(
    record: Mapping[str, Any], source: Sequence[str] | None, target: Sequence[str] | None
) -> tuple[Sequence[str], Sequence[str]]:
    """The tokens of a record; numbers for those that are not given."""
    if not record:
        raise ValueError("`explore(record)` needs recorded weights. Got an empty record.")
    shape: tuple[int, ...] = tuple(next(iter(record.values()))[-1].shape)
    queries, keys = (1, *shape)[-2:]
    columns = [str(k + 1) for k in range(keys)] if source is None else source
    if target is None and queries != len(columns):
        target = [str(k + 1) for k in range(queries)]
    return columns, columns if target is None else target
