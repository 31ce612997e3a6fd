"""Tables as text for the terminal, Markdown, LaTeX and CSV."""

import csv
import io
from collections.abc import Callable

from regmax.experiments.tables.collect import Cell, Table

_MISSING = "—"
# As the paper writes the names.
_PRINTED = {"sqpnormmax": "sq-pnorm-max"}


def terminal(table: Table) -> str:
    """Aligned columns; the best has a star, which reads the same with and without colours."""
    head = ["attention", *table.columns]
    body = [[_PRINTED.get(name, name), *(_starred(cell) for cell in cells)] for name, cells in table.rows]
    widths = [max(len(row[i]) for row in [head, *body]) for i in range(len(head))]
    lines = [
        "  ".join(f"{text:>{width}}" for text, width in zip(row, widths, strict=True))
        for row in [head, *body]
    ]
    return "\n".join([table.title, lines[0], "─" * len(lines[0]), *lines[1:]]) + "\n"


def markdown(table: Table) -> str:
    """A Markdown table under its title."""
    head = f"| attention | {' | '.join(table.columns)} |"
    rule = "|---|" + "---:|" * len(table.columns)
    body = [
        f"| {_PRINTED.get(name, name)} | {' | '.join(_bold(c, '**') for c in cells)} |"
        for name, cells in table.rows
    ]
    return "\n".join([f"**{table.title}**", "", head, rule, *body]) + "\n"


def latex(table: Table) -> str:
    """A tabular with booktabs' rules, as in the paper."""
    lines = [
        f"% {table.title}",
        rf"\begin{{tabular}}{{r {'c ' * len(table.columns)}}}",
        r"\toprule",
        " & ".join(["attention", *(_escaped(column) for column in table.columns)]) + r" \\",
        r"\midrule",
    ]
    for name, cells in table.rows:
        lines.append(" & ".join([_PRINTED.get(name, name), *(_latex_cell(cell) for cell in cells)]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def comma_separated(table: Table) -> str:
    """All digits, and the deviation in a column of its own."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["table", "attention", "column", "mean", "deviation"])
    for name, cells in table.rows:
        for column, cell in zip(table.columns, cells, strict=True):
            if cell is not None:
                writer.writerow([table.title, name, column, cell.mean, cell.deviation])
    return text.getvalue()


FORMATS: dict[str, Callable[[Table], str]] = {
    "terminal": terminal,
    "markdown": markdown,
    "latex": latex,
    "csv": comma_separated,
}


def _number(cell: Cell | None, plus_minus: str = " ± ") -> str:
    if cell is None:
        return _MISSING
    mean = f"{cell.mean:,.0f}" if abs(cell.mean) >= 1000 else f"{cell.mean:.2f}"
    return mean if cell.deviation is None else f"{mean}{plus_minus}{cell.deviation:.2f}"


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
