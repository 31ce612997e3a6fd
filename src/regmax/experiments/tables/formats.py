"""Tables as text for the terminal, Markdown, LaTeX and CSV."""

import csv
import io
from collections.abc import Callable, Sequence
from textwrap import wrap

from regmax.experiments.tables.collect import Cell, Table

_MISSING = "—"
_NARROWEST = 11  # letters


def terminal(tables: Sequence[Table]) -> str:
    """Aligned columns; the best has a star, which needs no colours."""
    return "\n".join(map(_terminal, tables))


def markdown(tables: Sequence[Table]) -> str:
    """Markdown tables under their titles."""
    return "\n".join(map(_markdown, tables))


def latex(tables: Sequence[Table]) -> str:
    """One tabular with booktabs rules per table, as in the paper."""
    return "\n".join(map(_latex, tables))


def comma_separated(tables: Sequence[Table]) -> str:
    """One number per line, with all digits, and its deviation in a separate column."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["table", "attention", "column", "mean", "deviation"])
    for table in tables:
        for name, cells in table.rows:
            for column, cell in zip(table.columns, cells, strict=True):
                if cell is not None:
                    writer.writerow([table.title, name, column, cell.mean, cell.deviation])
    return text.getvalue()


FORMATS: dict[str, Callable[[Sequence[Table]], str]] = {
    "terminal": terminal,
    "markdown": markdown,
    "latex": latex,
    "csv": comma_separated,
}


def _terminal(table: Table) -> str:
    body = [[name, *(_starred(cell) for cell in cells)] for name, cells in table.rows]
    widths = [max(map(len, column)) for column in zip(*body, strict=True)]
    # A long name is split over several lines to keep the column narrow.
    widths = [max(width, _NARROWEST) for width in widths]
    heads = [
        wrap(name, width, break_long_words=False) for name, width in zip(_head(table), widths, strict=True)
    ]
    height = max(map(len, heads))
    head = zip(*([""] * (height - len(lines)) + lines for lines in heads), strict=True)
    widths = [max(width, *map(len, lines)) for width, lines in zip(widths, heads, strict=True)]
    lines = ["  ".join(map(str.rjust, row, widths)) for row in [*head, *body]]
    return "\n".join([table.title, *lines[:height], "─" * len(lines[0]), *lines[height:]]) + "\n"


def _markdown(table: Table) -> str:
    rule = "|---|" + "---:|" * len(table.columns)
    body = [f"| {name} | {' | '.join(_bold(c, '**') for c in cells)} |" for name, cells in table.rows]
    return "\n".join([f"**{table.title}**", "", f"| {' | '.join(_head(table))} |", rule, *body]) + "\n"


def _latex(table: Table) -> str:
    lines = [
        f"% {table.title}",
        rf"\begin{{tabular}}{{r {'c ' * len(table.columns)}}}",
        r"\toprule",
        " & ".join(map(_escaped, _head(table))) + r" \\",
        r"\midrule",
    ]
    for name, cells in table.rows:
        lines.append(" & ".join([_escaped(name), *(_latex_cell(cell) for cell in cells)]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _head(table: Table) -> list[str]:
    return ["attention", *table.columns]


def _number(cell: Cell | None, plus_minus: str = " ± ") -> str:
    if cell is None:
        return _MISSING
    digits = 0 if abs(cell.mean) >= 1000 else cell.digits
    mean = f"{cell.mean:,.{digits}f}"
    return mean if cell.deviation is None else f"{mean}{plus_minus}{cell.deviation:,.{digits}f}"


def _starred(cell: Cell | None) -> str:
    return _number(cell) + ("*" if cell is not None and cell.best else " ")


def _bold(cell: Cell | None, mark: str) -> str:
    text = _number(cell)
    return f"{mark}{text}{mark}" if cell is not None and cell.best else text


def _latex_cell(cell: Cell | None) -> str:
    if cell is None:
        return "---"
    text = _number(cell, r" $\pm$ ").replace(",", "{,}")
    return rf"\textbf{{{text}}}" if cell.best else text


def _escaped(text: str) -> str:
    for sign in "&%#_":
        text = text.replace(sign, "\\" + sign)
    return text
