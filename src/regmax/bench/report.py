"""The report of a run: tables for the terminal, and JSON with all measurements."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from regmax.bench.cases import SCORES
from regmax.bench.cliffs import Cell
from regmax.bench.contestants import REFERENCE
from regmax.bench.growth import Fit, Growth, fits
from regmax.bench.measure import Result
from regmax.bench.summaries import MARKS, cliff_lines, use_lines
from regmax.bench.uses import UseResult
from regmax.files import write_atomically
from regmax.timing import FEWEST

FORMAT = 1  # of the JSON
_CELL = 14
LEGEND = "Time relative to torch.softmax in the same round: median ± half the interquartile range"


@dataclass(frozen=True)
class Verdict:
    """A figure and its bar; `at_least` if more is better."""

    subject: str
    contestant: str
    figure: float
    bar: float
    at_least: bool = False

    @property
    def is_met(self) -> bool:
        """Whether the figure, rounded as it is shown, is within the bar."""
        figure = round(self.figure, 2)
        return figure >= self.bar if self.at_least else figure <= self.bar

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        return f"{self.contestant}, {self.subject}: {self.figure:.2f}, bar {sign} {self.bar:g}"


class Bars(Protocol):
    """Targets to judge results by; the library's own are in benchmarks/bars.py, outside the package."""

    def ratio_bar(self, result: Result) -> float | None:
        """The bar on this result's ratio, if there is one."""

    def use_bar(self, result: UseResult, machine: Mapping[str, str]) -> float | None:
        """The bar on this use's ratio on this machine, if there is one."""

    def verdicts(self, report: "Report") -> Sequence[Verdict]:
        """Every bar that applies to this report."""


@dataclass
class Report:
    """All measurements, the machine, and the settings; filled during a run."""

    machine: Mapping[str, str]
    settings: Mapping[str, Any]
    results: list[Result] = field(default_factory=list)
    growth: list[Growth] = field(default_factory=list)
    uses: list[UseResult] = field(default_factory=list)
    cliffs: list[Cell] = field(default_factory=list)
    attention: list[dict[str, Any]] = field(default_factory=list)
    complete: bool = False

    def write(self, path: Path, bars: Bars | None = None) -> None:
        """Write everything as JSON, including the verdicts."""
        verdicts = [] if bars is None else bars.verdicts(self)
        judged = [asdict(verdict) | {"met": verdict.is_met} for verdict in verdicts]
        grown = [asdict(fit) | {"met": fit.is_met} for fit in fits(self.growth)]
        record = {"format": FORMAT, **asdict(self), "bars": judged, "growth fits": grown}
        write_atomically(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, path: Path) -> "Report":
        """Read a report written by `write`."""
        return cls.of(json.loads(path.read_text(encoding="utf-8")))

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Report":
        """The report of a record that `write` made."""
        results = [Result(**result) for result in record["results"]]
        growth = [Growth(**point) for point in record["growth"]]
        known = {name: record[name] for name in ("machine", "settings", "attention", "complete")}
        # Reports of earlier versions have neither uses nor cliffs.
        uses = [UseResult(**use) for use in record.get("uses", [])]
        cliffs = [Cell(**cell) for cell in record.get("cliffs", [])]
        return cls(**known, results=results, growth=growth, uses=uses, cliffs=cliffs)

    def lines(self, bars: Bars | None = None) -> Iterator[str]:
        """The whole report as text; with bars, results are marked by whether they meet them."""
        yield from (f"{name:<16} {value}" for name, value in self.machine.items())
        if self.results:
            yield from ("", LEGEND + ("." if bars is None else "; ✓ ✗ its bar."))
        yield from _tables(self.results, bars)
        yield from _attention(self.attention)
        yield from use_lines(self.uses, lambda use: None if bars is None else bars.use_bar(use, self.machine))
        yield from _growth(fits(self.growth))
        yield from cliff_lines(self.cliffs)
        if bars is not None:
            yield from _verdicts(bars.verdicts(self))
        yield from _disturbances(self.results)


def _tables(results: Sequence[Result], bars: Bars | None) -> Iterator[str]:
    """One table per kind of scores, number of threads and direction: shapes in rows, contestants in columns."""
    groups: dict[tuple[str, int, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.scores, result.threads, result.run), []).append(result)
    for (scores, threads, run), group in sorted(groups.items(), key=lambda item: _order(*item[0])):
        plural = "thread" if threads == 1 else "threads"
        yield from ("", f"{SCORES[scores]} · {run.replace('+', ' + ')} · {threads} {plural}")
        yield from _table(group, bars)


def _order(scores: str, threads: int, run: str) -> tuple[int, int, str]:
    return threads, list(SCORES).index(scores), run


def _table(group: Sequence[Result], bars: Bars | None) -> Iterator[str]:
    names = list(dict.fromkeys(result.contestant for result in group))
    shapes = list(dict.fromkeys((result.n, result.d) for result in group))
    found = {(result.n, result.d, result.contestant): result for result in group}
    # "torchsparseattn's sparsemax" takes two lines.
    heads = [name.split(" ") if " " in name else ["", name] for name in names]
    for line in range(2):
        words = "".join(f"{head[line]:>{_width(head)}}" for head in heads)
        if words.strip():
            yield f"{'rows x d' if line else '':>14}{words}"
    for n, d in shapes:
        cells = (
            _cell(found.get((n, d, name)), _width(head), bars)
            for name, head in zip(names, heads, strict=True)
        )
        yield (f"{f'{n} x {d}':>14}" + "".join(cells)).rstrip()


def _width(head: Sequence[str]) -> int:
    return max(_CELL, *(len(word) + 2 for word in head))


def _cell(result: Result | None, width: int, bars: Bars | None) -> str:
    """softmax's own time, or a ratio with its spread and mark."""
    if result is None:
        return " " * width
    if result.contestant == REFERENCE:
        return f"{result.microseconds:>{width - 3},.1f} µs"
    bar = None if bars is None else bars.ratio_bar(result)
    mark = MARKS[None if bar is None else round(result.ratio, 2) <= bar]
    decimals = 2 if result.ratio < 10 else 0
    # Too few turns for quartiles.
    spread = f"{(result.high - result.low) / 2:.{decimals}f}" if result.turns >= FEWEST else "?"
    text = f"{result.ratio:.{decimals}f} ±{spread} {mark}"
    return f"{text:>{width}}"


def _attention(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The rows of the attention benchmark, with all their columns."""
    if not rows:
        return
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[_text(row.get(name, "")) for name in names] for row in rows]
    widths = [max(len(name), *(len(row[i]) for row in cells)) for i, name in enumerate(names)]
    yield from ("", "Whole attention calls")
    for texts in (names, *cells):
        yield "  ".join(f"{text:>{width}}" for text, width in zip(texts, widths, strict=True)).rstrip()


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _growth(found: Iterable[Fit]) -> Iterator[str]:
    """The fitted powers: kinds of rows in rows, mappings in columns."""
    powers = {(fit.rows, fit.mapping): fit for fit in found}
    if not powers:
        return
    names, kinds = list(dict.fromkeys(m for _, m in powers)), list(dict.fromkeys(r for r, _ in powers))
    yield from ("", "Growth: the power of d by which time per row exceeds d log d")
    yield f"{'rows':>14}" + "".join(f"{name:>{_CELL}}" for name in names)
    for kind in kinds:
        fitted = [powers.get((kind, name)) for name in names]
        cells = ("" if fit is None else f"{fit.power:+.2f} {MARKS[fit.is_met]}" for fit in fitted)
        yield f"{kind:>14}" + "".join(f"{cell:>{_CELL}}" for cell in cells)


def _verdicts(judged: Sequence[Verdict]) -> Iterator[str]:
    if judged:
        missed = [verdict for verdict in judged if not verdict.is_met]
        yield from ("", f"Bars: {len(judged) - len(missed)} of {len(judged)} met.")
        yield from (f"  missed  {verdict}" for verdict in missed)


def _disturbances(results: Sequence[Result]) -> Iterator[str]:
    turns, disturbed = sum(r.turns for r in results), sum(r.disturbed for r in results)
    if disturbed > turns / 50:
        yield f"The machine was busy: {disturbed / turns:.0%} of the turns were disturbed. Do not quote these figures."
