"""Write the tables of docs/benchmarks.md from a kept report: `python benchmarks/page.py [--check] [--keep FOLDER]`.

`--keep` first copies the `bench.json` of a finished `make bench` into docs/results, compressed. On the page a table
stands between `<!-- table: NAME ARGUMENTS -->` and `<!-- end -->`; NAME is one of TABLES. `--check` writes nothing and
fails if the page differs from the report.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import bars

from regmax.bench.cliffs import ROWS, STEPS, Cell
from regmax.bench.contestants import REFERENCE
from regmax.bench.report import Report, Verdict
from regmax.files import write_atomically

ROOT = Path(__file__).parents[1]
DIRECTIONS = ("forward", "forward + backward")  # of whole attention calls
PAGE, KEPT = ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "results" / "benchmarks.json.gz"
_BLOCK = re.compile(r"(<!-- table: (?P<call>[^>]*) -->\n).*?(<!-- end -->)", re.DOTALL)
_WORST = 3  # cells shown for each mapping

Row = Sequence[str]


def markdown(head: Row, rows: Iterable[Row]) -> str:
    """A table in Markdown."""
    lines = (head, ["---"] * len(head), *rows)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def ratio(value: float, bar: float | None = None) -> str:
    """A ratio with two decimals, in bold if it is above its bar."""
    text = f"{value:.2f}" if value < 10 else f"{value:.0f}"
    return text if bar is None or round(value, 2) <= bar else f"**{text}**"


def machine(report: Report) -> str:
    """The machine, the versions and the date."""
    about = report.machine
    cpu = re.sub(r"\((?:R|TM)\)", "", about["CPU"])
    core = about["core"].rpartition(" ")[2]
    date = about["date"].partition(" ")[0]
    return f"*{cpu}, {about['cores']} cores, the core's {core} build, torch {about['torch']}, {date}.*\n"


def rows(report: Report, scores: str, run: str) -> str:
    """Rows of one kind of scores, one direction, one thread: shapes by contestants."""
    chosen = [r for r in report.results if (r.scores, r.run, r.threads) == (scores, run, 1)]
    names = [name for name in dict.fromkeys(r.contestant for r in chosen) if name != REFERENCE]
    found = {(r.n, r.d, r.contestant): r for r in chosen}

    def cell(n: int, d: int, name: str) -> str:
        result = found.get((n, d, name))
        return "" if result is None else ratio(result.ratio, bars.ratio_bar(result))

    shapes = dict.fromkeys((r.n, r.d) for r in chosen)
    return markdown(
        ["rows × d", *names], ([f"{n:,} × {d:,}", *(cell(n, d, name) for name in names)] for n, d in shapes)
    )


def attention(report: Report) -> str:
    """Whole calls on one thread: forward / forward + backward by number of keys and kind of scores."""
    timed = [row for row in report.attention if "direction" in row and row["threads"] == 1]
    found = {(_case(row), row["mapping"], row["direction"]): row for row in timed}
    names = list(dict.fromkeys(row["mapping"] for row in timed))

    def cell(case: tuple[int, str], name: str) -> str:
        given = (found[case, name, direction] for direction in DIRECTIONS)
        return " / ".join(ratio(row["ratio"], row["bar"]) for row in given)

    cases = dict.fromkeys(_case(row) for row in timed)
    return markdown(
        ["n", "scores", *names],
        ([f"{n:,}", scores, *(cell((n, scores), name) for name in names)] for n, scores in cases),
    )


def _case(row: dict[str, Any]) -> tuple[int, str]:
    return row["n"], row["scores"] + (", causal" if row["causal"] else "")


def memory(report: Report) -> str:
    """The peak memory of each mapping, relative to the dense composition's."""
    measured = (row for row in report.attention if "share" in row)
    sized = (
        (row["mapping"], f"{100 * row['share']:.1f} %", f"{row['dense_bytes'] / 2**20:,.0f} MB")
        for row in measured
    )
    return markdown(["mapping", "share", "of"], sized)


def uses(report: Report, *beginnings: str) -> str:
    """The uses whose names begin with one of these words; without any, those of rows."""
    others = ("attention:", "decode:", "inference:")
    chosen = [
        use
        for use in report.uses
        if (use.use.startswith(beginnings) if beginnings else not use.use.startswith(others))
    ]

    def line(use: Any) -> Row:
        bar = bars.use_bar(use, report.machine)
        name = use.use if beginnings else f"`{use.use}`"
        return name, ratio(use.ratio, bar), "" if bar is None else f"{bar:g}", use.baseline

    return markdown(["use", "ratio", "bar", "over"], map(line, chosen))


def cliffs(report: Report, of: str, run: str) -> str:
    """A line for each mapping: its cells, those above the steps, and the worst."""
    cells = [cell for cell in report.cliffs if (cell.of, cell.run) == (of, run)]
    low, high = STEPS[of][-2:]

    def line(name: str, own: Sequence[Cell]) -> Row:
        worst = sorted(own, key=lambda cell: cell.ratio, reverse=True)[:_WORST]
        counts = [str(sum(cell.ratio > limit for cell in own)) for limit in (low, high)]
        digits = 1 if of == ROWS else 2
        return [name, str(len(own)), *counts, "; ".join(f"{cell.ratio:.{digits}f} {cell}" for cell in worst)]

    names = dict.fromkeys(cell.mapping for cell in cells)
    lines = [line(name, [cell for cell in cells if cell.mapping == name]) for name in names]
    return markdown(
        ["mapping", "cells", f"above {low:g}", f"above {high:g}", "the worst"], [*lines, line("all", cells)]
    )


def missed(report: Report) -> str:
    """How many bars are met, and the list of the others."""
    judged: Sequence[Verdict] = bars.verdicts(report)
    others = [verdict for verdict in judged if not verdict.is_met]
    head = f"**{len(judged) - len(others)} of {len(judged)} bars are met.** The others:\n\n"
    return head + "".join(f"- {verdict}\n" for verdict in others)


TABLES: dict[str, Callable[..., str]] = {
    "machine": machine,
    "rows": rows,
    "attention": attention,
    "memory": memory,
    "uses": uses,
    "cliffs": cliffs,
    "missed": missed,
}


def made(page: str, report: Report) -> str:
    """The page with its tables as they should be."""

    def table(match: re.Match[str]) -> str:
        name, *arguments = match["call"].split()
        return f"{match[1]}\n{TABLES[name](report, *arguments)}\n{match[3]}"

    return _BLOCK.sub(table, page)


def kept() -> Report:
    """The report that the page shows."""
    return Report.of(json.loads(gzip.decompress(KEPT.read_bytes())))


def main(arguments: Sequence[str]) -> int:
    """Keep a report, and write or check the page."""
    parser = argparse.ArgumentParser(description="write the tables of docs/benchmarks.md")
    parser.add_argument("--check", action="store_true", help="fail if the page differs from the kept report")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="the folder of a finished `make bench`")
    given = parser.parse_args(arguments)
    if given.keep is not None:
        write_atomically(KEPT, gzip.compress((given.keep / "bench.json").read_bytes(), mtime=0))
    old = PAGE.read_text(encoding="utf-8")
    new = made(old, kept())
    if given.check and new != old:
        print(f"{PAGE} differs from the kept report: run benchmarks/page.py")
        return 1
    if new != old:
        write_atomically(PAGE, new)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
