"""Escape bars: docstrings write formulas in plain text, such as |y_i - y_j|; in reStructuredText a bar is markup."""

import re
from typing import Any

_CODE = re.compile(r"(`[^`]*`)")


def escape(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Escape bars outside code; doctests are not changed."""
    in_doctest = False
    for number, line in enumerate(lines):
        in_doctest = line.lstrip().startswith(">>>") or (in_doctest and bool(line.strip()))
        if not in_doctest:
            parts = _CODE.split(line)
            parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
            lines[number] = "".join(parts)


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", escape)
    return {"parallel_read_safe": True}
