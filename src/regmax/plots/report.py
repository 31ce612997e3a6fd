"""A report of several runs as one HTML file: tables, learning curves, speed, and the explorer on the test sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any, Protocol

from regmax.files import write_atomically
from regmax.mappings import MAPPINGS
from regmax.plots.charts import bar_chart, line_chart
from regmax.plots.explorer import explorer_page
from regmax.plots.runs import Run, read_runs, run_examples

_TERMS = (
    "Means over the rows of attention weights; a table's title says whether their target is the model's output or the "
    "reference. Support: weights that are not exactly zero. Segments: maximal sequences of adjacent equal nonzero "
    "weights. Clusters: distinct nonzero weights. Precision and recall compare the support with the known alignment, "
    "the source words that a target word translates; mass is the weight on them."
)
_TARGETS = (
    "The rows of a translation or a summary are the model's output; the reference is shown below the sentence. In "
    "entailment the rows are the hypothesis, and the menu of scores shows the label that the model predicts."
)
_NOT_SHOWN = (
    "mapping",
    "tensorboard",
    "save_every",
    "device",
)  # in the run's name, or without effect on the result
_STRENGTHS = {name for row in MAPPINGS.values() for name in row.strengths}


class TableLike(Protocol):
    """A table of the experiments: for each mapping, cells with a mean, a deviation, and whether it is the best."""

    @property
    def title(self) -> str: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def rows(self) -> tuple[tuple[str, tuple[Any, ...]], ...]: ...


def write_report(
    folders: Sequence[Path | str],
    path: Path | str,
    *,
    tables: Sequence[TableLike] = (),
    speeds: Mapping[str, float] | None = None,
) -> Path:
    """Write the report of finished runs to the file `path`, and return it.

    Args:
        folders: the runs' folders; their `history.json`, `examples.json` and `config.json` are read.
        path: the HTML file to write.
        tables: the result of `regmax.experiments.tables.tables` for these runs.
        speeds: training speed as a ratio to softmax by name, measured in turns (`regmax.experiments.speed`). It is not
            taken from the runs' epochs: their wall clock also measures what else the machine was doing.

    Returns:
        The path.

    Example:
        >>> import json, tempfile
        >>> one = {"source": ["a", "b"], "target": ["c"], "scores": [[1.0, 0.5]]}
        >>> config = {"mapping": "fusedmax", "gamma": 1.0, "lam": 0.2, "p": 1.5}
        >>> content = {"config": config, "examples": [one], "history": []}
        >>> with tempfile.TemporaryDirectory() as folder:  # the files that `regmax train` writes
        ...     for name, value in content.items():
        ...         _ = Path(folder, f"{name}.json").write_text(json.dumps(value))
        ...     write_report([folder], Path(folder, "report.html")).name
        'report.html'
    """
    path = Path(path)
    runs = _short_names(read_runs([Path(folder) for folder in folders]))
    parts = []
    if tables:
        listed = "".join(map(_table, tables))
        parts.append(f'<h2>On the test set</h2><div class="tables">{listed}</div><p>{_TERMS}</p>')
    parts.append(f"<h2>In training</h2>{_charts(runs, speeds or {})}")
    parts.append(f"<h2>Settings of the runs</h2>{_settings(runs)}")
    parts.append(f"<h2>Attention on test sentences</h2><p>{_TARGETS}</p>")
    examples = replace(run_examples(folders), title="Mappings compared")
    page = explorer_page(examples, before=f'<section class="report">{"".join(parts)}</section>')
    write_atomically(path, page)
    return path


def _short_names(runs: Sequence[Run]) -> list[Run]:
    """Name each run by its mapping only, if that distinguishes the runs."""
    mappings = [run.setting.mapping for run in runs]
    return [
        replace(run, name=name) if mappings.count(name) == 1 else run
        for run, name in zip(runs, mappings, strict=True)
    ]


def _table(table: TableLike) -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in table.columns)
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(map(_cell, cells))}</tr>'
        for name, cells in table.rows
    )
    caption = f"<caption>{escape(table.title)}</caption>"
    rows = f"<thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="scroll"><table>{caption}{rows}</table></div>'


def _cell(cell: Any) -> str:
    if cell is None:
        return "<td>—</td>"
    text = f"{cell.mean:,.0f}" if abs(cell.mean) >= 1000 else f"{cell.mean:.{cell.digits}f}"
    text += "" if cell.deviation is None else f" ± {cell.deviation:.2f}"
    return f"<td><strong>{text}</strong></td>" if cell.best else f"<td>{text}</td>"


def _settings(runs: Sequence[Run]) -> str:
    """A table of the fields that differ between the runs, and a list of those that all share."""
    names = list(dict.fromkeys(name for run in runs for name in run.config if name not in _NOT_SHOWN))
    shown = {name: [_setting(run, name) for run in runs] for name in names}
    differing = {name: values for name, values in shown.items() if len(set(values)) > 1}
    shared = {name: values[0] for name, values in shown.items() if len(set(values)) == 1}
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in differing)
    body = "".join(
        f'<tr><th scope="row">{escape(run.name)}</th>'
        + "".join(f"<td>{escape(values[k])}</td>" for values in differing.values())
        + "</tr>"
        for k, run in enumerate(runs)
    )
    rows = f"<thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody>"
    same = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in shared.items())
    table = f'<div class="scroll"><table>{rows}</table></div>' if differing else ""
    return f"{table}<details><summary>The same in all runs</summary><dl>{same}</dl></details>"


def _setting(run: Run, name: str) -> str:
    """A field of a run as text; a strength that its mapping does not have is blank."""
    if name in _STRENGTHS and name not in run.setting.row.strengths:
        return ""
    return _value(run.config.get(name, ""))


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return " ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def _charts(runs: Sequence[Run], speeds: Mapping[str, float]) -> str:
    """Learning curves by epoch, the development scores first, and the speed of training relative to softmax."""
    measured = dict.fromkeys(name for run in runs for record in run.history for name in record)
    scores = [name for name in measured if name.startswith("dev ") and name != "dev loss"]
    shown = [*scores, *(name for name in ("dev loss", "train loss") if name in measured)]
    charts = [line_chart(name, _curves(runs, name), x_label="epoch") for name in shown]
    if len(speeds) > 1:
        charts.append(bar_chart("training speed relative to softmax", speeds))
    return f'<div class="charts">{"".join(charts)}</div>'


def _curves(runs: Sequence[Run], name: str) -> dict[str, list[tuple[float, float]]]:
    curves = {
        run.name: [(record["epoch"], record[name]) for record in run.history if name in record]
        for run in runs
    }
    return {run: curve for run, curve in curves.items() if curve}
