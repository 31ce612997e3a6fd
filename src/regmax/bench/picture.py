"""Pictures of a run: ratios against d, growth, cliffs, and whole attention calls."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from regmax.bench.cases import SCORES
from regmax.bench.cliffs import ATTENTION
from regmax.bench.cliffs import ROWS as CLIFF_ROWS
from regmax.bench.contestants import BOTH, FLOOR, FORWARD, MAPPINGS, REFERENCE, RUNS
from regmax.bench.growth import WORST, Growth, fits
from regmax.bench.heat_map import heat_map
from regmax.bench.measure import Result
from regmax.bench.report import Report
from regmax.plots.colours import LINES
from regmax.plots.figures import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FLOOR, _SOFTMAX, _PEER = "#e6e6e6", "#000000", "#8c8c8c"
_GRID = "#dddddd"
_NAMES = {FORWARD: "ratios-forward.png", BOTH: "ratios.png"}
_PANELS = 3  # per row
# Wong's colours, each with a marker.
_ROWS = {
    "normal": ("#0072b2", "o"),
    "flat": ("#e69f00", "s"),
    "ties": ("#009e73", "^"),
    "ramp": ("#d55e00", "v"),
    "sawtooth": ("#cc79a7", "D"),
    "harmonic": ("#56b4e9", "P"),
}


def draw(report: Report, folder: Path) -> Iterator[Path]:
    """Write the pictures for which the report has figures, and yield their paths."""
    for run in RUNS:
        results = [r for r in report.results if r.run == run and r.threads == 1 and r.case.is_million]
        if _kinds(results):
            yield _save(ratios(results, run), folder / _NAMES[run])
    if fits(report.growth):
        yield _save(growth(report.growth), folder / "growth.png")
    for of, name in ((CLIFF_ROWS, "cliffs.png"), (ATTENTION, "cliffs-attention.png")):
        if cells := [cell for cell in report.cliffs if cell.of == of]:
            yield _save(heat_map(cells), folder / name)
    rows = [
        row
        for row in report.attention
        if {"mapping", "n", "ratio"} <= set(row) and row.get("threads", 1) == 1
    ]
    if rows:
        yield _save(attention(rows), folder / "attention.png")


def _save(figure: Figure, path: Path) -> Path:
    return save_figure(figure, path, dpi=150)


def ratios(results: Sequence[Result], run: str) -> Figure:
    """Time relative to softmax against d, one panel per kind of scores."""
    kinds = _kinds(results)
    columns = 2 if len(kinds) in (2, 4) else min(_PANELS, len(kinds))
    rows = math.ceil(len(kinds) / columns)
    figure = Figure(figsize=(1.2 + 4.2 * columns, 0.9 + 3.3 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel().tolist()
    for axes, kind in zip(grid, kinds, strict=False):
        _ratio_panel(axes, [result for result in results if result.scores == kind])
        axes.set_title(SCORES[kind], fontsize=11)
        _ticks(axes, sorted({result.d for result in results}))
    for axes in grid[len(kinds) :]:
        axes.remove()
    shown = [result.ratio for result in results if result.contestant in (*MAPPINGS, FLOOR)]
    grid[0].set_ylim(min(shown) / 1.5, max(2.0, *shown) * 1.2)
    figure.supxlabel("d, at about a million scores")
    figure.supylabel(f"time / softmax's, {run.replace('+', ' + ')}")
    _legend(figure, grid[0])
    return figure


def _kinds(results: Sequence[Result]) -> list[str]:
    """The kinds of scores measured at two lengths or more: a line needs two points."""
    return [kind for kind in SCORES if len({result.d for result in results if result.scores == kind}) > 1]


def _ratio_panel(axes: "Axes", results: Sequence[Result]) -> None:
    axes.set(xscale="log", yscale="log")
    for name in dict.fromkeys(result.contestant for result in results):
        series = sorted((r for r in results if r.contestant == name), key=lambda result: result.d)
        d = [result.d for result in series]
        if name == FLOOR:
            axes.fill_between(d, 1e-3, [r.ratio for r in series], color=_FLOOR, label="copy: the floor")
        elif name in MAPPINGS:
            colour, dashes = LINES[name]
            axes.fill_between(
                d, [r.low for r in series], [r.high for r in series], color=colour, alpha=0.15, lw=0
            )
            axes.plot(d, [r.ratio for r in series], color=colour, ls=dashes, marker="o", ms=4, label=name)
    axes.axhline(1.0, color=_SOFTMAX, lw=1.2, label=REFERENCE)


def _legend(figure: Figure, axes: "Axes") -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)


def _ticks(axes: "Axes", lengths: Sequence[int]) -> None:
    """Powers of two on the y axis, the measured lengths on the x axis."""
    axes.yaxis.set_major_locator(FixedLocator([2.0**k for k in range(-6, 8)]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:g}"))
    axes.xaxis.set_major_locator(FixedLocator(lengths))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda d, _: f"{d:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(axis="y", color=_GRID, lw=0.6)


def attention(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Whole attention calls: time relative to torch's against the number of keys.

    One panel per run; runs come in pairs, forward and forward + backward of the same scores, one above the other.
    """
    runs = list(dict.fromkeys(str(row.get("run", "")) for row in rows))
    down = 2 if len(runs) % 2 == 0 else 1
    across = len(runs) // down
    figure = Figure(figsize=(1.2 + 4.0 * across, 1.0 + 3.2 * down), layout="constrained")
    grid = figure.subplots(down, across, sharey=True, squeeze=False).ravel(order="F").tolist()
    for axes, run in zip(grid, runs, strict=True):
        chosen = [row for row in rows if str(row.get("run", "")) == run]
        axes.set(xscale="log", yscale="log", title=run)
        for name in dict.fromkeys(row["mapping"] for row in chosen):
            colour, dashes = LINES.get(name, (_PEER, "solid"))
            points = sorted((row["n"], row["ratio"]) for row in chosen if row["mapping"] == name)
            axes.plot(*zip(*points, strict=True), color=colour, ls=dashes, marker="o", ms=4, label=name)
        axes.axhline(1.0, color=_SOFTMAX, lw=1.2, label="softmax attention")
        _ticks(axes, sorted({row["n"] for row in chosen}))
    figure.supxlabel("keys")
    figure.supylabel("time / scaled_dot_product_attention's")
    _legend(figure, grid[0])
    return figure


def growth(points: Sequence[Growth]) -> Figure:
    """Time per score against d, one panel per mapping, one line per kind of rows."""
    names = [name for name in MAPPINGS if any(point.mapping == name for point in points)]
    figure = Figure(figsize=(3.9 * len(names), 4.1), layout="constrained")
    grid = figure.subplots(1, len(names), sharex=True, sharey=True, squeeze=False).ravel().tolist()
    for axes, name in zip(grid, names, strict=True):
        _growth_panel(axes, name, points)
    figure.supxlabel("d, at a constant number of scores")
    figure.supylabel("ns per score, forward + backward")
    _legend(figure, grid[0])
    return figure


def _growth_panel(axes: "Axes", name: str, points: Sequence[Growth]) -> None:
    axes.set(xscale="log", yscale="log")
    lengths = sorted({point.d for point in points})
    for kind in dict.fromkeys(point.rows for point in points):
        softmax = _series(points, REFERENCE, kind)
        axes.plot(*softmax, color=_PEER, lw=0.8, label=REFERENCE if kind == points[0].rows else None)
    for kind, (colour, marker) in _ROWS.items():
        if any(point.rows == kind for point in points):
            axes.plot(*_series(points, name, kind), color=colour, marker=marker, ms=4, label=kind)
    start = max(point.nanoseconds for point in points if (point.mapping, point.d) == (name, lengths[0]))
    guide = [start * math.log(d) / math.log(lengths[0]) for d in lengths]
    axes.plot(lengths, guide, color=_SOFTMAX, ls=(0, (1, 1.5)), lw=1.4, label=r"$d\,\log\,d$ per row")
    (worst,) = (fit for fit in fits(points) if (fit.mapping, fit.rows) == (name, WORST))
    axes.set_title(rf"{name}: worst rows like $d^{{\,{1 + worst.power:.2f}}}\log\,d$", fontsize=11)
    axes.xaxis.set_major_locator(FixedLocator([4**k for k in range(3, 9)]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda d, _: f"{d:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(color=_GRID, lw=0.6)


def _series(points: Sequence[Growth], name: str, kind: str) -> tuple[list[int], list[float]]:
    chosen = sorted((p.d, p.nanoseconds) for p in points if (p.mapping, p.rows) == (name, kind))
    return [d for d, _ in chosen], [nanoseconds for _, nanoseconds in chosen]
