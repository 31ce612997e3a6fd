"""Rows of weights as a table in the terminal: words in rows, mappings in columns.

The layout is plain text. If rich is installed, it is also coloured: the background of a weight shows its size, so
a segment is one area of one shade.
"""

from collections.abc import Sequence

import numpy as np

from regmax.cli.structure import Row, Weights, brackets, clusters

ZERO = "·"
LEGEND = f"{ZERO} exactly zero    ╭│╰ fused: equal to the last bit    A B C clusters of equal weight"
GAP_LEGEND = "duality gap: an upper bound on how far the objective is from its maximum"

# A part of a line: the text, and a weight in [0, 1] that colours it, or None for no colour.
Piece = tuple[str, float | None]
Line = list[Piece]

_WORD, _SCORE, _CELL = 12, 6, 12
_LIGHT, _DARK = (222, 235, 247), (8, 69, 148)


def show(words: Sequence[str], x: Weights, rows: Sequence[Row]) -> None:
    """Print the table, coloured if rich is installed and the output is a terminal."""
    lines = layout(words, x, rows)
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        for line in lines:
            print("".join(text for text, _ in line).rstrip())
    else:
        console = Console(highlight=False, soft_wrap=True)
        for line in lines:
            console.print(Text.assemble(*((text, _style(weight)) for text, weight in line)))


def layout(words: Sequence[str], x: Weights, rows: Sequence[Row]) -> list[Line]:
    """The table's lines, including the header and the summary."""
    largest = max(float(row.y.max()) for row in rows)
    columns = [_column(row, largest) for row in rows]
    body = [
        [
            (f"{word:<{_WORD}}{score:{_SCORE}.2f}  ", None),
            *(piece for column in columns for piece in column[i]),
        ]
        for i, (word, score) in enumerate(zip(words, x.tolist(), strict=True))
    ]
    rule: Line = [("─" * (_WORD + _SCORE + 2 + _CELL * len(rows)), None)]
    gaps = _gaps(rows)
    legend: Line = [(GAP_LEGEND, None)]
    return [
        _heading("word", "score", [row.name for row in rows]),
        _heading("", "", [row.parameter for row in rows]),
        rule,
        *body,
        rule,
        _heading("nonzero", "", [f"{(row.y != 0).sum()} of {len(words)}" for row in rows]),
        _heading("distinct", "", [str(np.unique(row.y[row.y != 0]).size) for row in rows]),
        *gaps,
        [(LEGEND, None)],
        *([legend] if gaps else []),
    ]


def _gaps(rows: Sequence[Row]) -> list[Line]:
    gaps = [row.gap for row in rows if row.gap is not None]
    if len(gaps) < len(rows):
        return []
    return [_heading("duality gap", "", [f"{max(gap, 0.0):.0e}" for gap in gaps])]


def _heading(first: str, second: str, texts: Sequence[str]) -> Line:
    return [(f"{first:<{_WORD}}{second:>{_SCORE}}  " + "".join(f"{text:^{_CELL}}" for text in texts), None)]


def _column(row: Row, largest: float) -> list[Line]:
    """A mapping's cells from the first word to the last."""
    marks = clusters(row.y) if row.clustered else brackets(row.y)
    return [_cell(weight, mark, weight / largest) for weight, mark in zip(row.y.tolist(), marks, strict=True)]


def _cell(weight: float, mark: str, shade: float) -> Line:
    """A weight with its mark, and a margin so that the colours of two mappings do not touch."""
    if weight == 0:
        return [(f"{ZERO:^{_CELL}}", None)]
    text = f"{weight:.3f}" if weight >= 0.0005 else "<.001"  # "0.000" would look like a zero
    return [(" ", None), (f"{f'{mark} {text}  ':^{_CELL - 2}}", shade), (" ", None)]


def _style(shade: float | None) -> str:
    if shade is None:
        return ""
    red, green, blue = (round(a + shade * (b - a)) for a, b in zip(_LIGHT, _DARK, strict=True))
    return f"{'bright_white' if shade > 0.5 else 'black'} on rgb({red},{green},{blue})"
