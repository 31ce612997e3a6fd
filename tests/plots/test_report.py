"""Runs side by side in the explorer, and the report with their tables and curves."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Page

from regmax.cli import main
from regmax.mappings import MAPPINGS
from regmax.plots import FormatError, Setting, run_examples, write_explorer, write_report

EXAMPLE = {
    "source": ["a", "<b>"],
    "target": ["c"],
    "reference": "gold",
    "scores": [[1.0, 0.25]],
    "weights": [[0.8, 0.2]],
}


@dataclass(frozen=True)
class Cell:
    """Like the cell of the experiments' tables."""

    mean: float
    deviation: float | None
    best: bool
    digits: int = 2


@dataclass(frozen=True)
class Table:
    """Like the table of the experiments."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Path]:
    """Create the folder of a run."""

    def make(mapping: str, seed: int = 0, **example: Any) -> Path:
        folder = tmp_path / f"{mapping}-{seed}"
        folder.mkdir()
        strengths = {"gamma": 1.0, "lam": 0.2, "p": 1.5, "alpha": 1.5}
        config = {"mapping": mapping, "seed": seed, **strengths}
        speed = {"softmax": 200.0}.get(mapping, 150.0)
        history = [{"epoch": e, "dev loss": 2.0 / e, "words per second": speed} for e in (1, 2, 3)]
        contents = {"config": config, "history": history, "examples": [{**EXAMPLE, **example}]}
        for name, content in contents.items():
            (folder / f"{name}.json").write_text(json.dumps(content))
        return folder

    return make


def test_runs_on_the_same_sentence_are_views_of_one_example(run: Callable[..., Path]) -> None:
    folders = [run("softmax"), run("fusedmax", target=["d", "e"], scores=[[1, 2], [3, 4]])]
    examples = run_examples(folders)
    (example,) = examples.examples
    assert example.note == "reference: gold"
    assert [view.name for view in example.views] == ["softmax", "fusedmax, λ = 0.2"]
    assert [view.target for view in example.views] == [("c",), ("d", "e")]
    assert [setting.mapping for setting in examples.start] == ["softmax", "fusedmax"]
    assert example.views[1].mapping == Setting("fusedmax", (("gamma", 1.0), ("lam", 0.2)))


def test_runs_of_one_mapping_are_told_apart_by_their_seed(run: Callable[..., Path]) -> None:
    (example,) = run_examples([run("softmax", 3), run("softmax", 4)]).examples
    assert [view.name for view in example.views] == ["softmax, seed 3", "softmax, seed 4"]


ENTAILMENT = [
    {
        "source": ["a", "man"],
        "target": [hypothesis],
        "name": f"{hypothesis} ← a man",
        "reference": gold,
        "scores": [[1, 2]],
    }
    for hypothesis, gold in (("someone", "entailment"), ("a dog", "contradiction"), ("he sings", "neutral"))
]


@pytest.mark.parametrize("older", [False, True])
def test_pairs_that_share_a_premise_are_examples_of_their_own(
    older: bool, run: Callable[..., Path], tmp_path: Path
) -> None:
    folders = [run("softmax"), run("fusedmax")]
    said = {"softmax": ["entailment", "neutral", "neutral"], "fusedmax": ["neutral"] * 3}
    for folder in folders:
        labels = said[folder.name.partition("-")[0]]
        listed = [{**example, "output": label} for example, label in zip(ENTAILMENT, labels, strict=True)]
        if older:  # as it was written before
            for example in listed:
                example["reference"] = f"{example.pop('output')} (gold: {example['reference']})"
                del example["name"]
        (folder / "examples.json").write_text(json.dumps(listed))
    examples = run_examples(folders).examples
    assert [example.title for example in examples] == ["someone ← a man", "a dog ← a man", "he sings ← a man"]
    assert [example.note for example in examples] == [
        "reference: entailment",
        "reference: contradiction",
        "reference: neutral",
    ]
    assert [view.name for view in examples[0].views] == ["softmax: entailment", "fusedmax, λ = 0.2: neutral"]
    assert [view.target for view in examples[2].views] == [("he sings",), ("he sings",)]


def test_a_sentence_that_occurs_twice_has_two_entries_that_differ(
    run: Callable[..., Path], tmp_path: Path
) -> None:
    folder = run("softmax")
    (folder / "examples.json").write_text(json.dumps([EXAMPLE, {**EXAMPLE, "target": ["d"]}]))
    examples = run_examples([folder, folder])
    assert [[view.target for view in example.views] for example in examples.examples] == [
        [("c",), ("c",)],
        [("d",), ("d",)],
    ]
    page = write_explorer(examples, tmp_path / "page.html").read_text(encoding="utf-8")
    assert '"name":"a \\u003cb\\u003e","note"' in page
    assert '"name":"a \\u003cb\\u003e (2)","note"' in page


def test_the_title_of_a_runs_picture_names_its_mapping_once(run: Callable[..., Path]) -> None:
    from regmax.cli.plot import _panels

    (example,) = run_examples([run("softmax"), run("fusedmax")]).examples
    figure = _panels(example, [])
    assert [axes.get_title() for axes in figure.axes[:2]] == ["softmax", "fusedmax, λ = 0.2"]


def test_runs_that_differ_in_another_field_have_names_that_differ(
    run: Callable[..., Path], tmp_path: Path
) -> None:
    folders = [run("softmax"), tmp_path / "longer"]
    shutil.copytree(*folders)
    (example,) = run_examples(folders).examples
    assert [view.name for view in example.views] == ["softmax, seed 0, softmax-0", "softmax, seed 0, longer"]
    page = write_report(folders, tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("<polyline") == 2  # a curve of dev loss for each


def test_the_escapes_of_moses_are_undone_in_the_reference(run: Callable[..., Path]) -> None:
    (example,) = run_examples([run("softmax", reference="l&apos; ami &amp; moi")]).examples
    assert example.note == "reference: l' ami & moi"


def test_only_speeds_that_were_measured_in_turns_are_shown(run: Callable[..., Path], tmp_path: Path) -> None:
    speeds = {"softmax": 1.0, "fusedmax": 0.96}
    path = write_report([run("softmax"), run("fusedmax")], tmp_path / "report.html", speeds=speeds)
    page = path.read_text(encoding="utf-8")
    assert ">0.96</text>" in page
    plain = write_report([run("sparsemax"), run("softmax", 1)], tmp_path / "plain.html").read_text(
        encoding="utf-8"
    )
    assert "relative to softmax" not in plain  # the epochs' wall clock says what else the machine was doing


def test_the_report_has_tables_curves_and_the_explorer(
    run: Callable[..., Path], tmp_path: Path, tab: Callable[..., Page]
) -> None:
    rows = (
        ("softmax", (Cell(61.5, None, False), None)),
        ("fusedmax", (Cell(66.25, 0.5, True), Cell(2000.0, None, False))),
    )
    table = Table("BLEU & <more>", ("BLEU", "words"), rows)
    path = write_report([run("softmax"), run("fusedmax")], tmp_path / "out" / "report.html", tables=[table])
    page = tab(dark=True).open(path)
    assert page.evaluate("document.querySelector('.report caption').textContent") == "BLEU & <more>"
    cells = page.evaluate(
        "[...document.querySelectorAll('.report tbody tr')].map((row) => row.innerText.split('\\t'))"
    )
    scores = [["softmax", "61.50", "—"], ["fusedmax", "66.25 ± 0.50", "2,000"]]
    assert cells == [*scores, ["softmax", ""], ["fusedmax", "0.2"]]  # then the settings that differ: lam
    assert page.evaluate("document.querySelector('.report strong').textContent") == "66.25 ± 0.50"
    assert page.evaluate("document.querySelectorAll('.charts polyline').length") == 2
    assert (
        page.evaluate("document.querySelectorAll('.charts rect').length") == 0
    )  # no speeds: not measured in turns
    shown = [
        page.evaluate(f"document.getElementById('{side}-0-0').dataset.weight") for side in ("left", "right")
    ]
    given = np.array([EXAMPLE["scores"][0]])
    expected = [Setting("softmax")(given)[0, 0], Setting("fusedmax", (("lam", 0.2),))(given)[0, 0]]
    assert [float(weight) for weight in shown] == pytest.approx(expected, abs=1e-12)


def test_the_score_of_the_table_has_the_first_curve(run: Callable[..., Path], tmp_path: Path) -> None:
    folder = run("fusedmax")
    history = [{"epoch": e, "train loss": 1.0, "dev loss": 2.0 / e, "dev BLEU": 9.0 * e} for e in (1, 2)]
    (folder / "history.json").write_text(json.dumps(history))
    page = write_report([folder], tmp_path / "report.html").read_text(encoding="utf-8")
    assert re.findall(r'<svg[^>]* aria-label="([^"]*)"', page) == ["dev BLEU", "dev loss", "train loss"]
    assert "the reference is shown below the sentence" in page


def test_all_models_are_shown_under_their_own_mappings(
    run: Callable[..., Path], tmp_path: Path, tab: Callable[..., Page]
) -> None:
    example = {"source": ["a", "b", "c"], "scores": [[1.0, 0.9, -2.0]]}
    folders = [run(name, **example) for name in ("softmax", "fusedmax", "sparsemax")]
    page = tab().open(write_report(folders, tmp_path / "report.html"), "#show=heads")
    page.settle()
    page.wait(lambda: page.evaluate("document.querySelectorAll('.figure[data-painted]').length") == 2)
    said = page.evaluate("[...document.querySelectorAll('#left .head')].map((head) => head.title)")
    parts = [text.partition(": ")[2] for text in said]
    assert parts == [
        "support 3.0 of 3 words, segments of 1.00, 0 % zero",
        "support 2.0 of 3 words, segments of 2.00, 33 % zero",
        "support 2.0 of 3 words, segments of 1.00, 33 % zero",
    ]
    page.evaluate("document.querySelectorAll('#right .head')[2].click()")
    page.settle()
    chosen = [page.evaluate(f"document.getElementById('{side}-mapping').value") for side in ("left", "right")]
    assert chosen == ["softmax", "sparsemax"]


def test_details_name_the_mapping_of_a_run_once(
    run: Callable[..., Path], tmp_path: Path, tab: Callable[..., Page]
) -> None:
    page = tab().open(write_report([run("softmax"), run("fusedmax")], tmp_path / "report.html"))
    names = "[...document.querySelectorAll('.summary strong')].map((one) => one.textContent)"
    page.settle()
    assert page.evaluate(names) == ["softmax", "fusedmax, λ = 0.2"]
    page.evaluate(
        "((number) => (number.value = 0.5, number.dispatchEvent(new Event('change'))))"
        "(document.getElementById('right-lam').nextSibling)"
    )
    page.settle()
    assert page.evaluate(names) == ["softmax", "fusedmax, fusedmax, λ = 0.2"]


def test_settings_and_file_names_are_text(
    run: Callable[..., Path], tmp_path: Path, tab: Callable[..., Page]
) -> None:
    folder = run("softmax")
    config = json.loads((folder / "config.json").read_text())
    hostile = "<img src=x onerror=alert(1)>"
    config |= {"test": [hostile, "b"], hostile: "<script>alert(2)</script>", "epochs": 3}
    (folder / "config.json").write_text(json.dumps(config))
    page = tab().open(write_report([folder, run("fusedmax")], tmp_path / "report.html"))
    assert page.evaluate("document.querySelectorAll('.report img, .report script').length") == 0
    assert f"{hostile} b" in page.evaluate("document.querySelector('.report').textContent")


@pytest.mark.parametrize("dark", [False, True])
def test_the_lines_are_readable_in_both_themes(
    run: Callable[..., Path], tmp_path: Path, tab: Callable[..., Page], dark: bool
) -> None:
    page = tab(dark=dark).open(write_report([run(name) for name in MAPPINGS], tmp_path / "report.html"))
    drawn = page.evaluate(
        "[...document.querySelectorAll('polyline.series')].map((line) => getComputedStyle(line).stroke)"
    )
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert len(set(drawn)) == len(MAPPINGS)
    assert all(contrast(colour, paper) >= 3 for colour in drawn)  # WCAG's bound for graphics


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours "rgb(r, g, b)" as WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        shares = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
        return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("config.json", None, "is not the folder of a finished run: it has no config.json"),
        ("config.json", "{}", "config.json is not the configuration of a run: KeyError('mapping')"),
        ("examples.json", "[", "examples.json is not JSON"),
        ("examples.json", '[{"source": []}]', "examples.json: `examples[0].source` is empty"),
    ],
)
def test_a_folder_that_is_no_run_is_refused(
    run: Callable[..., Path], file: str, text: str | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run("softmax")
    (folder / file).unlink() if text is None else (folder / file).write_text(text)
    with pytest.raises(FormatError, match=re.escape(message)):
        run_examples([folder])
    assert main(["explore", "--run", str(folder)]) == 2
    assert message in capsys.readouterr().err


def test_the_command_writes_the_report(
    run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = run("fusedmax"), tmp_path / "report.html"
    arguments = ["explore", "--run", str(folder), "--report", "--out", str(out)]
    assert main(arguments) == 2
    assert "holds no finished run: result.json is missing" in capsys.readouterr().err
    speed = {"seconds per epoch": 1.0, "words per second": 150.0}
    result = {
        "task": "translation",
        "data": ["generated"],
        "scores": {"BLEU": 12.5},
        "attention": {},
        "speed": speed,
    }
    (folder / "result.json").write_text(json.dumps({**result, "mapping": "fusedmax", "seed": 0}))
    assert main(arguments) == 0
    assert "<td>12.50</td>" in out.read_text(encoding="utf-8")
    assert main(["explore", "--report"]) == 2
    assert "--report needs runs to report on" in capsys.readouterr().err


def test_a_runs_heat_maps_are_drawn_with_its_own_mapping(run: Callable[..., Path], tmp_path: Path) -> None:
    assert main(["plot", str(run("oscarmax")), "--out", str(tmp_path), "--format", "svg"]) == 0
    assert (tmp_path / "attention-1.svg").exists()
