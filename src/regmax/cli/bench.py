"""`regmax bench`: every mapping against `torch.softmax`; growth with the length of rows; uses; cliffs."""

import json
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from regmax.cli.errors import CommandError
from regmax.cli.experiments import packages
from regmax.cli.parser import Parser, positive
from regmax.extras import how_to_install
from regmax.files import write_atomically
from regmax.mappings import MAPPINGS

if TYPE_CHECKING:
    from regmax.bench.report import Bars, Report

Item = TypeVar("Item")
# `measure(quick=...)` of benchmarks/attention.py, which is not part of the package: measurements of whole attention
# calls. Rows with `mapping`, `n` and `ratio` (and `run`, `threads`) are drawn.
Attention = Callable[..., list[dict[str, Any]]]

PARTS = ("ratios", "growth", "uses", "cliffs", "attention")
INSTRUCTION_SETS = ("avx512", "avx2", "baseline")
TIMED = tuple(name for name, row in MAPPINGS.items() if row.sparse)  # softmax is what they are compared with
SCORES = ("normal", "peaked", "attention", "flat", "padding", "causal")


def run(arguments: Sequence[str], attention: Attention | None = None, bars: "Bars | None" = None) -> int:
    """Measure, print the tables, write the JSON and the pictures; an interrupt keeps the measurements so far.

    The repository's benchmarks/run.py adds whole attention calls, and the bars that results are judged by.
    """
    made = parser()
    options = made.parse(arguments)
    if options.device != "cpu":
        return _run_on_device(options)
    with packages("torch"):
        from regmax.bench import machine
        from regmax.bench.report import Report
    settings = {"quick": options.quick, "threads": options.threads, "mappings": options.mappings}
    with _instruction_set(options.instruction_set, made):
        report = Report(machine.describe(), settings | {"only": options.only})
        try:
            _measure(report, options, attention)
            report.complete = True
        except KeyboardInterrupt:
            print("\nInterrupted. Measurements so far:", file=sys.stderr)
        finally:
            _finish(report, options.out, bars)
    return 0 if report.complete else 130


def _run_on_device(options: Namespace) -> int:
    """Measure on an accelerator; the JSON is written after every measurement."""
    with packages("torch"):
        import torch

        from regmax.bench import device
    name = str(options.device)
    if name.partition(":")[0] != "cuda":
        raise CommandError(f"`regmax bench --device` must be cpu or cuda. Got {name!r}.")
    if not torch.cuda.is_available():
        raise CommandError("`regmax bench --device cuda` needs a GPU that torch can use. Got none.")
    sizes: dict[str, Any] = {"rows": device.ROWS[:2], "lengths": device.LENGTHS[:2]} if options.quick else {}
    timings: list[dict[str, Any]] = []
    path = options.out / "bench-cuda.json"
    for timing in device.measure(name, options.mappings, **sizes):
        timings.append(asdict(timing))
        value = timing.error or f"{timing.milliseconds:.3f} ms"
        print(
            f"{timing.part} {timing.n} x {timing.d}, {timing.contestant}, {timing.run}: {value}", flush=True
        )
        record = {"machine": device.describe(name), "timings": timings}
        write_atomically(path, json.dumps(record, indent=1) + "\n")
    print(path)
    return 0


@contextmanager
def _instruction_set(name: str | None, made: Parser) -> Iterator[None]:
    """The core with this instruction set; None: the machine's best."""
    from regmax.kernels import native

    if name is None:
        yield
        return
    before = native.instruction_set() if native.available() else None
    try:
        native.use_instruction_set(name)
    except ValueError:
        made.error(
            f"`--instruction-set` must be one that this machine has. Got {name}, with {before or 'no core'}"
        )
    try:
        yield
    finally:
        native.use_instruction_set(str(before))


def _finish(report: "Report", folder: Path, bars: "Bars | None") -> None:
    print("\n".join(report.lines(bars)))
    report.write(folder / "bench.json", bars)
    print(folder / "bench.json")
    _draw(report, folder)


def _measure(report: "Report", options: Namespace, attention: Attention | None) -> None:
    from regmax import bench
    from regmax.bench.growth import ROWS

    if "ratios" in options.parts:
        cases = bench.quick_cases() if options.quick else bench.full_cases()
        seconds = 0.04 if options.quick else 0.3
        cases = [case for case in cases if case.scores in options.scores]
        for case in _progress(cases, lambda case: f"{case.scores}, {case.n} x {case.d}"):
            given = {"threads": options.threads, "mappings": options.mappings, "seconds": seconds}
            report.results.extend(bench.compare(case, peers=not options.quick, **given))
    if "growth" in options.parts:
        size: dict[str, Any] = {"lengths": (64, 512, 4096, 65536), "total": 2**18, "seconds": 0.01}
        for kind in _progress(ROWS, lambda kind: f"growth, {kind} rows"):
            report.growth.extend(
                bench.grow(kind, mappings=options.mappings, **(size if options.quick else {}))
            )
    if "uses" in options.parts:
        _measure_uses(report, options)
    if "cliffs" in options.parts:
        _measure_cliffs(report, options)
    if "attention" in options.parts and attention is not None:
        report.attention.extend(attention(quick=options.quick))


def _measure_uses(report: "Report", options: Namespace) -> None:
    from regmax import bench

    uses = [use for use in (*bench.row_uses(), *bench.attention_uses()) if _is_selected(use.name, options)]
    uses = [use for use in uses if use.is_quick or not options.quick]
    for use in _progress(uses, lambda use: use.name):
        report.uses.append(bench.measure_use(use, seconds=0.02 if options.quick else 0.3))


def _measure_cliffs(report: "Report", options: Namespace) -> None:
    from regmax import bench
    from regmax.bench import cliffs

    settings = [
        setting
        for setting in cliffs.SETTINGS
        if setting.mapping in options.mappings and _is_selected(setting.label, options)
    ]
    total = 2**16 if options.quick else 2**18
    for kind, d in _progress(
        cliffs.row_cases(options.quick), lambda case: f"cliffs, {case[0]} rows of {case[1]}"
    ):
        report.cliffs.extend(bench.row_cells(kind, d, settings, total=total))
    for kind, n in _progress(
        cliffs.attention_cases(options.quick), lambda case: f"cliffs, attention, {case[0]}, {case[1]} keys"
    ):
        report.cliffs.extend(bench.attention_cells(kind, n, settings))


def _is_selected(name: str, options: Namespace) -> bool:
    """Whether the name contains one of the words of `--only`, if there are any."""
    return not options.only or any(word in name for word in options.only)


def _draw(report: "Report", folder: Path) -> None:
    try:
        from regmax.bench import picture
    except ModuleNotFoundError as error:
        print(f"No figures: {error.name} is missing, {how_to_install('plots')}.")
        return
    for path in picture.draw(report, folder):
        print(path)


def _progress(items: Sequence[Item], label: Callable[[Item], str]) -> Iterable[Item]:
    """The items with progress: one line that is rewritten on a terminal, one line per item elsewhere."""
    terminal, start = sys.stderr.isatty(), time.monotonic()
    for done, item in enumerate(items):
        left = (len(items) - done) * (time.monotonic() - start) / done if done else 0.0
        text = f"[{done + 1}/{len(items)}] {label(item)}" + (f", about {left:.0f} s left" if left else "")
        print(
            f"\r\033[K{text}" if terminal else text, end="" if terminal else "\n", file=sys.stderr, flush=True
        )
        yield item
    if terminal:
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def parser() -> Parser:
    """The options of the command."""
    made = Parser(
        prog="regmax bench",
        description="Benchmark every mapping against torch.softmax, on the same scores, with interleaved calls.",
    )
    where = "output folder for the JSON and the figures (%(default)s)"
    made.add_argument(
        "--device",
        default="cpu",
        metavar="NAME",
        help="cpu, or cuda for rows and attention on a GPU (%(default)s)",
    )
    made.add_argument("--quick", action="store_true", help="fewer cases and repetitions: one or two minutes")
    made.add_argument("--out", type=Path, default=Path("regmax-bench"), metavar="FOLDER", help=where)
    made.add_argument(
        "--threads", nargs="+", type=positive, default=[1, 2], metavar="N", help="thread counts (1 2)"
    )
    for option, choices in (("--mappings", TIMED), ("--scores", SCORES), ("--parts", PARTS)):
        which = f"some of {', '.join(choices)} (all)"
        made.add_argument(
            option, nargs="+", choices=choices, default=list(choices), metavar="NAME", help=which
        )
    which = "only uses and cliff settings whose names contain one of these words (all)"
    made.add_argument("--only", nargs="+", default=[], metavar="WORD", help=which)
    made.add_argument(
        "--instruction-set", choices=INSTRUCTION_SETS, help="the core's instruction set (the machine's best)"
    )
    return made
