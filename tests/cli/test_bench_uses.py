"""The parts *uses* and *cliffs* of the benchmark: what is timed, what is judged, what is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import regmax
from benchmarks import bars
from regmax import bench
from regmax.bench import cliffs, rows
from regmax.bench.attention_cases import inputs
from regmax.bench.cliffs import ATTENTION, ROWS, SETTINGS, Cell, Setting
from regmax.bench.contestants import BOTH, FORWARD
from regmax.bench.report import Report
from regmax.bench.uses import Use, UseResult
from regmax.cli import main
from regmax.kernels import native

Captured = pytest.CaptureFixture[str]
AVX512, AVX2, BASELINE = ({"core": f"native core: {name}"} for name in ("avx512", "avx2", "baseline"))


def all_uses() -> list[Use]:
    return [*bench.row_uses(64, 16), *bench.attention_uses(16)]


def use_result(use: str = "fusedmax, lam learned", ratio: float = 1.9) -> UseResult:
    return UseResult(use, "softmax", ratio, ratio - 0.1, ratio + 0.1, 1234.0, 9)


def cell(ratio: float, of: str = ROWS, run: str = BOTH, kind: str = "ramp", d: int = 64) -> Cell:
    return Cell(of, run, "fusedmax, lam = 0.1", "fusedmax", kind, d, ratio, 100.0)


def test_every_use_runs_and_is_compared_with_a_baseline() -> None:
    for use in all_uses():
        if use.is_quick and "keys of" not in use.name:
            baseline, own = use.calls()
            baseline()
            own()


def test_uses_have_different_names_and_every_bar_has_its_use() -> None:
    names = [use.name for use in all_uses()]
    assert len(set(names)) == len(names)
    optional = {name for name in bars.USES if "package" in name or "compiled" in name}
    assert set(bars.USES) - optional <= set(names)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.label)
def test_every_setting_can_be_trained(setting: Setting) -> None:
    function, learned = setting.prepare(8)
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    found = torch.autograd.grad(function(x)[0, 0], (x, *learned))
    assert len(found) == 1 + setting.is_learned
    assert all(gradient.isfinite().all() for gradient in found)


def test_learned_strengths_get_gradients() -> None:
    setting = Setting("fusedmax", "lam", 0.1, is_learned=True)
    function, (lam,) = setting.prepare(8)
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(function(x), regmax.fusedmax(x, lam=0.1))
    function(x)[0, 0].backward()
    assert lam.grad is not None


def test_a_use_is_measured_in_turns_with_its_baseline() -> None:
    made: list[str] = []
    use = Use("own", "base", lambda: (lambda: made.append("base"), lambda: made.append("own")))
    found = bench.measure_use(use, seconds=0.001)
    assert (found.use, found.baseline) == ("own", "base")
    assert found.low <= found.ratio <= found.high
    assert set(made) == {"base", "own"}


def test_the_bars_of_uses_are_wider_with_narrower_vectors() -> None:
    use = use_result()
    assert bars.use_bar(use, AVX512) == 2.0
    assert bars.use_bar(use, AVX2) == 3.0
    assert bars.use_bar(use, BASELINE) is None
    assert bars.use_bar(use_result("fusedmax(x)"), AVX512) is None


def test_uses_are_marked_and_judged() -> None:
    report = Report(AVX512, {}, uses=[use_result(), use_result("sqpnormmax(x, p=1.3)", 2.5)])
    assert [(v.contestant, v.bar, v.is_met) for v in bars.verdicts(report)] == [
        ("fusedmax, lam learned", 2.0, True),
        ("sqpnormmax(x, p=1.3)", 2.0, False),
    ]
    text = "\n".join(report.lines(bars))
    assert "1.90 ±0.10 ✓ bar 2" in text
    assert "2.50 ±0.10 ✗ bar 2" in text
    assert "missed  sqpnormmax(x, p=1.3), over softmax: 2.50, bar <= 2" in text
    assert "bar" not in "\n".join(report.lines())


def test_cliffs_are_judged_by_the_worst_cell_and_by_the_share_of_steep_ones() -> None:
    some = [cell(1.0)] * 17 + [cell(6.0), cell(11.0), cell(12.5, kind="ties")]
    some += [cell(1.5, ATTENTION), cell(9.0, ATTENTION, FORWARD), cell(2.5, ATTENTION)]
    found = bars.verdicts(Report({}, {}, cliffs=some))
    assert [(v.figure, v.bar, v.is_met) for v in found] == [
        (12.5, 12.0, False),
        (0.15, 0.1, False),
        (2.5, 2.0, False),
    ]
    assert "ties, d = 64, the worst of rows" in str(found[0])
    assert all(v.is_met for v in bars.verdicts(Report({}, {}, cliffs=[cell(1.0)] * 9 + [cell(12.0)])))


def test_the_summary_of_cliffs_counts_and_names_the_worst() -> None:
    some = [cell(ratio) for ratio in (0.5, 6.0, 13.0)] + [cell(1.7, ATTENTION)]
    lines = list(Report({}, {}, cliffs=some).lines())
    assert "Cliffs: rows, forward + backward · CPU time relative to softmax · 3 cells" in lines
    (row,) = (line.split() for line in lines if line.startswith("fusedmax") and "13.0" in line)
    assert row[1:4] == ["3", "2", "1"]
    assert "13.0 fusedmax, lam = 0.1, ramp, d = 64; 6.0" in " ".join(row)
    assert any("above 1" in line and "above 2" in line for line in lines)  # attention


def test_the_heat_map_shows_the_worst_length_of_every_setting_and_kind(tmp_path: Path) -> None:
    from regmax.bench.heat_map import heat_map
    from regmax.bench.picture import draw

    some = [cell(0.5), cell(13.2, d=256), cell(4.96, kind="ties")]
    (axes,) = heat_map(some).axes
    assert [text.get_text() for text in axes.texts] == ["13", "5.0"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["ramp", "ties"]
    both = [cell(1.5, ATTENTION, FORWARD), cell(2.5, ATTENTION), cell(0.5, ATTENTION, kind="ties")]
    forward, backward = heat_map(both).axes
    assert [text.get_text() for text in forward.texts] == ["1.5"]  # ties were not measured
    assert [text.get_text() for text in backward.texts] == ["2.5", "0.5"]
    paths = list(draw(Report({}, {}, cliffs=some + both), tmp_path))
    assert [path.name for path in paths] == ["cliffs.png", "cliffs-attention.png"]


@pytest.mark.parametrize("kind", rows.KINDS)
def test_rows_of_every_kind_are_mapped(kind: str) -> None:
    x = rows.scores(kind, 16, 32)
    assert x.shape == (16, 32)
    assert torch.equal(x, rows.scores(kind, 16, 32))
    y = regmax.fusedmax(x)
    torch.testing.assert_close(y.sum(-1), torch.ones(16))


@pytest.mark.parametrize("kind", ["ramp", "sawtooth", "ties", "constant"])
def test_attention_has_the_scores_of_its_kind_for_every_query(kind: str) -> None:
    q, k, _ = inputs(24, kind, heads=2)
    scores = (q @ k.mT / 8).detach()
    torch.testing.assert_close(scores, scores[:1, :1, :1].expand_as(scores))
    assert scores.unique().numel() == {"ramp": 24, "sawtooth": 8, "ties": 3, "constant": 1}[kind]
    assert scores.max() - scores.min() < 1


def test_the_cells_are_all_settings_on_all_rows_of_all_lengths() -> None:
    assert 900 < len(SETTINGS) * len(cliffs.row_cases()) < 1200
    assert set(cliffs.row_cases(quick=True)) < set(cliffs.row_cases())
    assert set(cliffs.attention_cases(quick=True)) < set(cliffs.attention_cases())
    labels = [setting.label for setting in SETTINGS]
    assert len(set(labels)) == len(labels)


def test_every_setting_gets_a_cell() -> None:
    settings = SETTINGS[::6] + SETTINGS[-1:]
    found = list(bench.row_cells("ramp", 16, settings, total=64, seconds=1e-4))
    assert [cell.setting for cell in found] == [setting.label for setting in settings]
    assert all((c.of, c.run, c.kind, c.d) == (ROWS, BOTH, "ramp", 16) and c.ratio > 0 for c in found)
    threads = torch.get_num_threads()
    found = list(bench.attention_cells("ties", 16, settings, heads=1, rounds=1))
    fixed = [setting.label for setting in settings if not setting.is_learned]
    assert [c.setting for c in found if c.run == FORWARD] == fixed
    assert [c.setting for c in found if c.run == BOTH] == [setting.label for setting in settings]
    assert torch.get_num_threads() == threads


def test_uses_and_cliffs_survive_json_and_older_reports_are_read(tmp_path: Path) -> None:
    report = Report(AVX2, {}, uses=[use_result()], cliffs=[cell(3.0), cell(0.5, ATTENTION)])
    path = tmp_path / "bench.json"
    report.write(path, bars)
    assert Report.read(path) == report
    record = json.loads(path.read_text())
    assert len(record["bars"]) == 4
    del record["uses"], record["cliffs"]
    path.write_text(json.dumps(record))
    assert Report.read(path) == Report(AVX2, {})


def test_the_command_selects_uses_and_settings_by_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: set[str] = set()

    def cells(kind: str, d: int, chosen: list[Setting], **options: object) -> list[Cell]:
        settings.update(setting.label for setting in chosen)
        return [cell(1.0, kind=kind, d=d)]

    monkeypatch.setattr(bench, "measure_use", lambda use, **options: use_result(use.name))
    monkeypatch.setattr(bench, "row_cells", cells)
    monkeypatch.setattr(bench, "attention_cells", cells)
    options = ["--quick", "--parts", "uses", "cliffs", "--only", "p=1.3", "p = 1.3", "gamma learned"]
    assert main(["bench", "--out", str(tmp_path), *options]) == 0
    report = Report.read(tmp_path / "bench.json")
    assert [use.use for use in report.uses] == [
        "fusedmax, gamma learned",
        "fusedmax, lam and gamma learned",
        "sqpnormmax(x, p=1.3)",
    ]
    assert settings == {"sqpnormmax, p = 1.3"}
    assert len(report.cliffs) == len(cliffs.row_cases(quick=True)) + len(cliffs.attention_cases(quick=True))


@pytest.mark.skipif(not native.available(), reason="needs the core")
def test_the_command_can_force_an_instruction_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    before, used = native.instruction_set(), []
    monkeypatch.setattr(bench, "measure_use", lambda use, **_: used.append(native.instruction_set()))
    monkeypatch.setattr(Report, "write", lambda *_: None)
    monkeypatch.setattr(Report, "lines", lambda self, bars: [self.machine["core"]])
    options = ["--parts", "uses", "--only", "sparsemax(x)", "--out", str(tmp_path)]
    assert main(["bench", "--instruction-set", "baseline", *options]) == 0
    assert set(used) == {"baseline"}
    assert "native core: baseline" in capsys.readouterr().out
    assert native.instruction_set() == before


@pytest.mark.skipif(not native.available(), reason="needs the core")
def test_an_instruction_set_that_the_machine_lacks_is_an_error_of_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def refuse(name: str) -> None:
        raise ValueError(name)

    monkeypatch.setattr(native, "use_instruction_set", refuse)
    with pytest.raises(SystemExit):
        main(["bench", "--instruction-set", "avx512"])
    assert "must be one that this machine has. Got avx512" in capsys.readouterr().err
