"""The benchmark: it times the stated calls in turns, checks the bars, and keeps its measurements."""

from __future__ import annotations

import json
import platform
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import regmax
from benchmarks import bars
from regmax import bench
from regmax.bench import cases, contestants, device, growth, machine
from regmax.bench.cases import MILLION, SCORES, Case
from regmax.bench.contestants import BOTH, FORWARD, MAPPINGS
from regmax.bench.growth import Growth
from regmax.bench.measure import Result
from regmax.bench.report import Report, Verdict
from regmax.cli import bench as command
from regmax.cli import main

Captured = pytest.CaptureFixture[str]
PNG = b"\x89PNG\r\n\x1a\n"


def result(name: str = "sparsemax", ratio: float = 0.5, **changes: object) -> Result:
    base = Result(
        "normal", MILLION // 64, 64, BOTH, 1, name, ratio, ratio, ratio, 1000 * ratio, 900 * ratio, 9, 0
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def a_report() -> Report:
    """Two lengths of every kind of scores, and growth like d log d."""
    ratios = {"softmax": 1.0, "copy": 0.2, **dict.fromkeys(MAPPINGS, 0.7)}
    results = [
        result(name, ratio, scores=scores, n=MILLION // d, d=d, run=run)
        for scores in SCORES
        for d in (32, 512)
        for run in (FORWARD, BOTH)
        for name, ratio in ratios.items()
    ]
    points = [Growth(name, "ramp", 2**k, float(k)) for name in ("softmax", *MAPPINGS) for k in (6, 9, 11, 13)]
    return Report(machine.describe(), {"quick": True}, results, points)


@pytest.mark.parametrize("scores", SCORES)
def test_every_case_can_be_mapped_and_is_the_same_in_every_run(scores: str) -> None:
    case = Case(scores, 64, 30)
    given, again = cases.tensors(case), cases.tensors(case)
    assert given.x.numel() == 64 * 30
    assert torch.equal(given.x, again.x)
    assert (given.keep is not None) == (scores in cases.MASKS)
    y = regmax.fusedmax(given.x, mask=given.keep)
    torch.testing.assert_close(y.sum(-1), torch.ones(y.shape[:-1]))
    if given.keep is not None:
        assert not y[~given.keep.expand_as(y)].any()
        assert given.filled.isneginf().any()


def test_attention_scores_are_normal_but_for_the_key_that_a_query_looks_for() -> None:
    x = cases.tensors(Case("attention", 4096, 64)).x
    top, rest = x.amax(-1).mean(), x.median()
    assert 3.5 < top < 4.8
    assert abs(rest) < 0.1


def test_the_causal_mask_is_the_usual_one_where_queries_are_keys() -> None:
    keep = cases.tensors(Case("causal", 32 * 32, 32)).keep
    assert keep is not None
    assert torch.equal(keep, torch.ones(32, 32, dtype=torch.bool).tril())


def test_the_full_run_has_every_shape_and_the_quick_one_every_bar() -> None:
    full = bench.full_cases()
    assert {(case.n, case.d) for case in full} >= {(64, 30), (2**16, 64), (2**11, 2048)}
    assert {case.d for case in full if case.is_million} == {32, 64, 128, 512, 2048}
    assert set(bench.quick_cases()) <= set(full)
    assert {case.d for case in bench.quick_cases() if case.scores == "attention"} == set(
        bars.RATIOS["fusedmax"]
    )


@pytest.mark.parametrize("run", [FORWARD, BOTH])
def test_contestants_compute_what_they_are_named_after(run: str) -> None:
    given = cases.tensors(Case("padding", 64, 30))
    made = {name: call.run() for name, call in contestants.calls(given, run, peers=False).items()}
    expected = regmax.fusedmax(given.x, lam=0.1, mask=given.keep)
    if run == BOTH:
        leaf = given.x.clone().requires_grad_()
        (expected,) = torch.autograd.grad(regmax.fusedmax(leaf, lam=0.1, mask=given.keep), leaf, given.v)
    found = made["fusedmax"] if run == FORWARD else made["fusedmax"][0]  # type: ignore[index]
    assert torch.equal(found, expected)
    assert list(made) == ["softmax", "copy", *MAPPINGS]


def test_other_libraries_agree_with_ours_where_they_are_installed() -> None:
    given = cases.tensors(Case("normal", 64, 30))
    made = contestants.calls(given, FORWARD)
    others = [name for name in made if "'s " in name and not name.endswith("oscarmax")]
    for name in others:
        y = made[name].run()
        y = torch.stack(y) if isinstance(y, list) else y
        ours = contestants.mapping(name.split()[-1], 30)(given.x)
        torch.testing.assert_close(y.reshape(ours.shape), ours, atol=1e-5, rtol=0)


def test_comparing_gives_every_contestant_a_ratio_with_its_quartiles() -> None:
    found = list(bench.compare(Case("padding", 64, 30), threads=(1, 2), peers=False, seconds=0.002))
    assert len(found) == 2 * 2 * (2 + len(MAPPINGS))
    assert all(r.low <= r.ratio <= r.high and r.best <= r.microseconds for r in found)
    assert {r.ratio for r in found if r.contestant == "softmax"} == {1.0}


def test_bars_are_judged_as_they_are_shown() -> None:
    assert Verdict("", "sparsemax", 0.604, 0.6).is_met
    assert not Verdict("", "sparsemax", 0.606, 0.6).is_met
    assert Verdict("", "sparsemax", 1.8, 1.7, at_least=True).is_met
    assert not Verdict("", "sparsemax", 1.6, 1.7, at_least=True).is_met


def test_every_bar_finds_its_results() -> None:
    results = [
        result(ratio=0.5),
        result(ratio=0.9, threads=2, microseconds=250.0),
        result(ratio=0.7, scores="padding"),
        result(ratio=3.5, scores="flat"),
        result(ratio=1.0, n=64, d=30, run=FORWARD),
        result("copy", 0.2),
        result(ratio=9.0, scores="peaked"),
    ]
    found = bars.verdicts(Report({}, {}, results))
    assert [(round(v.figure, 2), v.bar, v.is_met) for v in found] == [
        (0.5, 0.6, True),
        (3.5, 3.0, False),
        (1.0, 1.0, True),
        (1.4, 1.3, False),
        (2.0, 1.7, True),
    ]


@pytest.mark.parametrize(("power", "met"), [(0.0, True), (-0.3, True), (0.2, False), (1.0, False)])
def test_growth_beyond_d_log_d_is_found(power: float, met: bool) -> None:
    points = [Growth("fusedmax", "ramp", 2**k, k * 2.0 ** (k * power)) for k in range(6, 17)]
    own, worst = bench.fits(points)
    assert own.power == worst.power == pytest.approx(power, abs=1e-9)
    assert (own.is_met, worst.is_met) == (None, met)


def test_growth_is_judged_by_the_worst_rows_of_each_length() -> None:
    points = [Growth("fusedmax", "ramp", d, 1.0) for d in (64, 512, 4096)]
    points += [Growth("fusedmax", "ties", d, t) for d, t in ((64, 0.1), (512, 0.5), (4096, 0.9))]
    fits = {fit.rows: fit for fit in bench.fits(points)}
    assert fits["ties"].power > 0.3
    assert fits[growth.WORST].power == pytest.approx(fits["ramp"].power)


@pytest.mark.parametrize("kind", growth.ROWS)
def test_growth_is_timed_on_rows_of_every_length(kind: str) -> None:
    points = list(bench.grow(kind, mappings=("fusedmax",), lengths=(64, 256), total=512, seconds=0.001))
    assert [(p.mapping, p.d) for p in points] == [
        ("softmax", 64),
        ("fusedmax", 64),
        ("softmax", 256),
        ("fusedmax", 256),
    ]
    assert all(point.nanoseconds > 0 for point in points)


def test_a_report_survives_json_and_names_no_machine(tmp_path: Path) -> None:
    report = a_report()
    report.write(tmp_path / "new" / "bench.json")
    assert Report.read(tmp_path / "new" / "bench.json") == report
    text = (tmp_path / "new" / "bench.json").read_text()
    assert platform.node() not in text
    assert str(Path.home()) not in text
    assert {"bars", "growth fits", "machine"} <= set(json.loads(text))


def test_the_report_marks_what_was_met_and_lists_what_was_missed() -> None:
    text = "\n".join(a_report().lines(bars))
    assert "0.70 ±0.00 ✗" in text  # sparsemax, d = 512
    assert "0.70 ±0.00 ✓" in text
    assert "missed  sparsemax, N(0, 1), 2048 x 512, forward+backward: 0.70, bar <= 0.55" in text


def test_without_bars_nothing_is_judged(tmp_path: Path) -> None:
    report = a_report()
    text = "\n".join(report.lines())
    assert "0.70 ±0.00" in text
    tables, _, growth_table = text.partition("Growth")
    assert not {"✓", "✗"} & set(tables)
    assert "✓" in growth_table  # d log d is a law, not a bar
    assert "bar" not in tables.lower()
    report.write(tmp_path / "plain.json")
    report.write(tmp_path / "judged.json", bars)
    plain, judged = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("plain", "judged"))
    assert plain.pop("bars") == []
    assert {"figure", "bar", "met"} <= set(judged.pop("bars")[0])
    assert plain == judged


def test_the_package_has_no_bars_and_the_repositorys_benchmarks_pass_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(bench, "compare", lambda case, **options: [result(n=case.n, d=case.d)])
    arguments = ["--quick", "--parts", "ratios", "--out", str(tmp_path)]
    assert main(["bench", *arguments]) == 0
    assert "Bars:" not in capsys.readouterr().out
    assert command.run(arguments, bars=bars) == 0
    assert "Bars:" in capsys.readouterr().out


def test_a_spread_needs_turns() -> None:
    report = a_report()
    report.results = [replace(r, turns=1) for r in report.results]
    assert "0.70 ±? ✗" in "\n".join(report.lines(bars))


def test_a_busy_machine_is_named() -> None:
    report = a_report()
    assert "busy" not in "\n".join(report.lines())
    report.results = [replace(r, disturbed=5) for r in report.results]
    assert "56% of the turns were disturbed" in "\n".join(report.lines())


def test_pictures_are_drawn_of_what_was_measured(tmp_path: Path) -> None:
    from regmax.bench import picture

    report = a_report()
    paths = list(picture.draw(report, tmp_path))
    assert [path.name for path in paths] == ["ratios-forward.png", "ratios.png", "growth.png"]
    assert all(path.read_bytes().startswith(PNG) for path in paths)
    report.results.clear()
    report.growth.clear()
    assert list(picture.draw(report, tmp_path)) == []


def test_an_interrupt_keeps_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def compare(case: Case, **options: object) -> list[Result]:
        if case.d == 64:
            raise KeyboardInterrupt
        return [result(n=case.n, d=case.d)]

    monkeypatch.setattr(bench, "compare", compare)
    assert main(["bench", "--quick", "--out", str(tmp_path)]) == 130
    kept = Report.read(tmp_path / "bench.json")
    assert [(r.n, r.d) for r in kept.results] == [(64, 30), (MILLION // 32, 32)]
    assert not kept.complete
    captured = capsys.readouterr()
    assert "[3/15] normal, 16384 x 64" in captured.err
    assert "32768 x 32" in captured.out


def test_the_command_measures_what_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Case, dict[str, object]]] = []
    monkeypatch.setattr(bench, "compare", lambda case, **options: asked.append((case, options)) or [])
    options = ["--quick", "--threads", "3", "--mappings", "fusedmax", "--scores", "flat", "--parts", "ratios"]
    assert main(["bench", "--out", str(tmp_path), *options]) == 0
    assert {case.scores for case, _ in asked} == {"flat"}
    assert all(given["threads"] == [3] and given["mappings"] == ["fusedmax"] for _, given in asked)


def test_figures_about_attention_join_the_report(tmp_path: Path, capsys: Captured) -> None:
    rows = [{"mapping": "sparsemax", "n": n, "run": BOTH, "ratio": 0.1875} for n in (512, 1024)]
    arguments = ["--quick", "--parts", "attention", "--out", str(tmp_path)]
    assert command.run(arguments, attention=lambda quick: rows if quick else []) == 0
    assert Report.read(tmp_path / "bench.json").attention == rows
    assert "sparsemax   512  forward+backward  0.1875" in capsys.readouterr().out
    assert (tmp_path / "attention.png").read_bytes().startswith(PNG)


def test_a_failure_keeps_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(kind: str, **options: object) -> list[Growth]:
        raise RuntimeError("broken")

    monkeypatch.setattr(bench, "compare", lambda case, **options: [result(n=case.n, d=case.d)])
    monkeypatch.setattr(bench, "grow", fail)
    with pytest.raises(RuntimeError, match="broken"):
        main(["bench", "--quick", "--out", str(tmp_path)])
    assert len(Report.read(tmp_path / "bench.json").results) == len(bench.quick_cases())


def test_the_command_and_the_benchmark_know_the_same_names() -> None:
    assert command.TIMED == MAPPINGS
    assert tuple(SCORES) == command.SCORES


def test_a_device_is_measured_by_the_same_command(capsys: pytest.CaptureFixture[str]) -> None:
    """On the CPU, which has no events: what a GPU's owner runs works at the first try."""
    timings = list(device.measure("cpu", ["sparsemax", "fusedmax"], rows=[(8, 16)], lengths=[16]))
    assert {(timing.part, timing.run) for timing in timings} == {
        (part, run) for part in ("rows", "attention") for run in ("forward", "forward and backward")
    }
    assert {"torch.softmax", "scaled_dot_product_attention", "fusedmax"} <= {t.contestant for t in timings}
    assert all(timing.error is None and timing.milliseconds > 0 for timing in timings)
    if not torch.cuda.is_available():
        assert main(["bench", "--device", "cuda"]) == 2
        assert "needs a GPU that torch can use. Got none." in capsys.readouterr().err
    assert main(["bench", "--device", "tpu"]) == 2
    assert "must be cpu or cuda. Got 'tpu'." in capsys.readouterr().err


def test_a_contestant_that_fails_is_recorded() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("out of memory\nand more")

    timing = device.Timing("rows", "fails", "", 1, 1)
    found = list(device._both(fails, [torch.ones(1, 1)], timing))
    assert [each.error for each in found] == ["out of memory", "out of memory"]
