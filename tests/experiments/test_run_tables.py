"""Run folders become tables, and the commands say what they do."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from regmax.cli import main
from regmax.experiments.config import make
from regmax.experiments.errors import ExperimentError
from regmax.experiments.tables import FORMATS, Cell, find_runs, tables
from regmax.experiments.tasks import Result
from regmax.experiments.training import runs

Captured = pytest.CaptureFixture[str]


def result(folder: Path, mapping: str, seed: int, **changes: Any) -> None:
    record = {
        "task": "translation",
        "mapping": mapping,
        "seed": seed,
        "data": ["test.en", "test.de"],
        "scores": {"BLEU": 30.0},
        "attention": {"support": 3.0, "precision": 40.0},
        "speed": {"seconds per epoch": 10.0, "words per second": 2000.0},
        **changes,
    }
    (folder / f"{mapping}-{seed}").mkdir(parents=True)
    (folder / f"{mapping}-{seed}" / "result.json").write_text(json.dumps(record))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed, score in enumerate((34.0, 36.0)):
        result(tmp_path, "softmax", seed, scores={"BLEU": score})
        speed = {"seconds per epoch": 20.0, "words per second": 1900.0}
        result(tmp_path, "fusedmax", seed, scores={"BLEU": score + 1}, speed=speed)
    result(tmp_path, "sqpnormmax", 0, scores={"BLEU": 33.0}, attention={"support": 2.0})
    return tmp_path


def test_a_table_has_mean_deviation_and_the_best(folder: Path) -> None:
    scores, attention, alignment, speed = tables(find_runs([folder]))
    assert scores.title == "translation, test, en to de"
    assert scores.columns == ("BLEU",)
    assert scores.rows == (
        ("softmax", (Cell(35.0, pytest.approx(2**0.5)),)),
        ("fusedmax", (Cell(36.0, pytest.approx(2**0.5), best=True),)),
        ("sqpnormmax", (Cell(33.0, None),)),
    )
    assert attention.rows[2][1] == (Cell(2.0, None),)
    assert alignment.rows[2][1] == (None,)
    assert speed.title == "translation, test, en to de: speed by wall clock"
    assert speed.columns == (
        "seconds per epoch",
        "words per second",
    )  # no ratio: runs are not measured in turns


def test_every_format_shows_the_same_numbers(folder: Path) -> None:
    (scores,) = tables(find_runs([folder]), ["scores"])
    assert FORMATS["terminal"]([scores]).splitlines()[3:] == [
        "    softmax  35.00 ± 1.41 ",
        "   fusedmax  36.00 ± 1.41*",
        " sqpnormmax         33.00 ",
    ]
    assert FORMATS["markdown"]([scores]).splitlines()[2:6] == [
        "| attention | BLEU |",
        "|---|---:|",
        "| softmax | 35.00 ± 1.41 |",
        "| fusedmax | **36.00 ± 1.41** |",
    ]
    assert r"fusedmax & \textbf{36.00 $\pm$ 1.41} \\" in FORMATS["latex"]([scores])
    rows = list(csv.DictReader(io.StringIO(FORMATS["csv"]([scores]))))
    assert [float(row["mean"]) for row in rows] == [35.0, 36.0, 33.0]
    assert [row["deviation"] for row in rows][2] == ""


def test_tasks_and_test_sets_have_their_own_tables(folder: Path) -> None:
    result(folder / "more", "softmax", 7, data=["other"])
    result(
        folder / "more", "softmax", 8, task="entailment", data=["dev"], scores={"accuracy": 70.0, "loss": 0.7}
    )
    made = tables(find_runs([folder]), ["scores"])
    assert [table.title for table in made] == [
        "entailment, dev",
        "translation, other",
        "translation, test, en to de",
    ]
    assert made[0].columns == ("accuracy",)


def test_summaries_have_truncated_and_whole_scores_and_the_parts_of_rouge_l(tmp_path: Path) -> None:
    scores = {
        f"{name} {part}{kind}": 1.0
        for kind in (" (75 bytes)", "")
        for name in ("ROUGE-1", "ROUGE-L")
        for part in ("precision", "recall", "f1")
    }
    result(tmp_path, "softmax", 0, task="summarization", scores=scores)
    made = {table.title.partition(": ")[2]: table for table in tables(find_runs([tmp_path]), ["scores"])}
    assert set(made) == {"F1 (75 bytes)", "ROUGE-L (75 bytes)", "F1", "ROUGE-L"}
    assert made["F1"].columns == made["F1 (75 bytes)"].columns == ("ROUGE-1", "ROUGE-L")
    assert made["ROUGE-L"].columns == ("precision", "recall", "f1")


def test_a_table_of_many_columns_fits_a_terminal_and_comma_separated_tables_have_one_head(
    tmp_path: Path,
) -> None:
    names = ("zeros", "support", "segments", "segment length", "clusters", "cluster size", "entropy")
    for seed in range(3):
        result(tmp_path, "softmax", seed, attention=dict.fromkeys(names, 10.0 + seed))
    made = tables(find_runs([tmp_path]))
    lines = FORMATS["terminal"](made).splitlines()
    assert max(map(len, lines)) <= 120
    assert (
        "       length" in lines[lines.index("translation, test, en to de: attention on the reference") + 2]
    )
    assert FORMATS["csv"](made).count("deviation") == 1


def test_two_runs_of_one_seed_are_not_averaged(folder: Path) -> None:
    result(folder / "more", "softmax", 1)
    with pytest.raises(
        ExperimentError, match=r"softmax-1 and .*softmax-1 are two runs of one configuration and seed"
    ):
        tables(find_runs([folder]))


def configured(folder: Path, mapping: str, seed: int, score: float, **fields: Any) -> Path:
    """A finished run with its configuration, as `regmax train` leaves it."""
    config = make("translation", "small", {"mapping": mapping, "seed": seed, **fields})
    name = f"{mapping}-{seed}-{len(list(folder.iterdir())) if folder.exists() else 0}"
    made = folder / name
    found = Result({"BLEU": score}, {"support": 2.0}, "the model's output")
    runs.write_result(made, config, found, [{"seconds": 1.0, "words per second": 10.0}])
    return made


def test_a_sweep_has_a_row_for_each_configuration_and_averages_seeds_only(tmp_path: Path) -> None:
    for seed in (0, 1):
        configured(tmp_path, "softmax", seed, 30.0 + seed)
        for lam in (10.0, 0.1, 1.0):  # 1 is the default
            configured(tmp_path, "fusedmax", seed, 20.0 + lam + seed, lam=lam)
    (scores,) = tables(find_runs([tmp_path]), ["scores"])
    assert [(name, cells[0].mean) for name, cells in scores.rows if cells[0]] == [
        ("softmax", 30.5),
        ("fusedmax, lam=0.1", pytest.approx(20.6)),
        ("fusedmax, lam=1", 21.5),
        ("fusedmax, lam=10", 30.5),
    ]
    assert "fusedmax, lam=10" in FORMATS["terminal"]([scores])
    assert "fusedmax, lam=10 & " in FORMATS["latex"]([scores])


@pytest.mark.parametrize(
    ("fields", "labels"),
    [
        ([{}, {"epochs": 9}], ["softmax, epochs=5", "softmax, epochs=9"]),
        (
            [{}, {"scaled": False, "epochs": 9}],
            ["softmax, epochs=5, scaled=yes", "softmax, epochs=9, scaled=no"],
        ),
        ([{"save_every": 3}], ["softmax"]),
        ([{"gamma": 2.0}], ["softmax, gamma=2"]),
        ([{"mapping": "fusedmax"}, {"mapping": "oscarmax"}], ["fusedmax", "oscarmax"]),
        ([{"mapping": "fusedmax"}, {"epochs": 9}], ["softmax, epochs=9", "fusedmax, epochs=5"]),
        ([{"mapping": "sqpnormmax", "p": 1.25}], ["sqpnormmax, p=1.25"]),
        ([{"mapping": "fusedmax", "anneal_from": 0.0}, {}], ["softmax", "fusedmax"]),
        (
            [{"mapping": "fusedmax", "anneal_from": 0.0}, {"mapping": "fusedmax"}],
            ["fusedmax, anneal_from=0", "fusedmax, anneal_from=4"],
        ),
        (
            [{"mapping": "fusedmax", "grow_end": 0.0}, {"mapping": "fusedmax"}],
            ["fusedmax, lam=0.1", "fusedmax, grow_begin=0.4, grow_end=0.7, lam=1"],
        ),
        (
            [{"mapping": "fusedmax", "lam": 1.0, "grow_end": 0.0}, {"mapping": "fusedmax"}],
            ["fusedmax, grow_end=0", "fusedmax, grow_begin=0.4, grow_end=0.7"],
        ),
        ([{"mapping": "fusedmax", "lam": 0.1, "grow_end": 0.0}], ["fusedmax, lam=0.1"]),
        ([{"mapping": "fusedmax", "lam": 1.0, "grow_end": 0.0}], ["fusedmax, grow_end=0"]),
        ([{"mapping": "fusedmax", "grow_end": 0.5}], ["fusedmax, grow_begin=0, grow_end=0.5"]),
    ],
)
def test_rows_are_named_by_what_differs(
    fields: list[dict[str, Any]], labels: list[str], tmp_path: Path
) -> None:
    for changes in fields:
        configured(tmp_path, **{"mapping": "softmax", "seed": 0, "score": 1.0, **changes})
    (scores,) = tables(find_runs([tmp_path]), ["scores"])
    assert [name for name, _ in scores.rows] == labels


def test_outputs_are_compared_by_a_paired_bootstrap(tmp_path: Path) -> None:
    texts = [f"a b c d e f{i} g h i j k" for i in range(60)]
    worse = [text if i % 2 else "x y z w v" for i, text in enumerate(texts)]
    same = [*texts[:-1], "a b c d"]
    for mapping, outputs in (("softmax", texts), ("sparsemax", worse), ("fusedmax", same)):
        config = make("translation", "small", {"mapping": mapping})
        found = Result({"BLEU": 1.0}, {}, outputs=outputs, references=[(text, text) for text in texts])
        runs.write_result(tmp_path / mapping, config, found, [])
    configured(tmp_path, "oscarmax", 0, 1.0)  # without outputs
    (scores,) = tables(find_runs([tmp_path]), ["scores"])
    assert scores.columns == ("BLEU", "p against softmax")
    softmax, sparsemax, fusedmax, oscarmax = (cells[1] for _, cells in scores.rows)
    assert softmax is None
    assert oscarmax is None
    assert sparsemax is not None
    assert fusedmax is not None
    assert sparsemax.mean < 0.01 < 0.05 < fusedmax.mean
    assert f"{sparsemax.mean:.3f}" in FORMATS["markdown"]([scores])


def test_equal_scores_do_not_differ_by_more_than_chance(tmp_path: Path) -> None:
    texts = [f"a b c d e f{i} g h i j k" for i in range(20)]
    for mapping in ("softmax", "fusedmax"):
        config = make("translation", "small", {"mapping": mapping})
        found = Result({"BLEU": 100.0}, {}, outputs=texts, references=[(text,) for text in texts])
        runs.write_result(tmp_path / mapping, config, found, [])
    (scores,) = tables(find_runs([tmp_path]), ["scores"])
    assert [cells[1] and cells[1].mean for _, cells in scores.rows] == [None, 1.0]


@pytest.mark.parametrize("task", ["translation", "entailment", "summarization"])
def test_kept_statistics_give_the_p_values_of_the_outputs(task: str, tmp_path: Path) -> None:
    words = {"entailment": "neutral"}.get(task, "a b c d e f g h")
    texts = [words if task == "entailment" else f"{words} {i}" for i in range(40)]
    for mapping, wrong in (("softmax", 3), ("sparsemax", 20)):
        for seed in (0, 1):
            outputs = [text if (i + seed) % 40 >= wrong else "x y z" for i, text in enumerate(texts)]
            config = make(task, "small", {"mapping": mapping, "seed": seed})
            score = {"translation": "BLEU", "entailment": "accuracy", "summarization": "ROUGE-1 f1"}[task]
            found = Result({score: 1.0}, {}, outputs=outputs, references=[(text,) for text in texts])
            runs.write_result(tmp_path / "whole" / f"{mapping}-{seed}", config, found, [])
    for folder in (tmp_path / "whole").iterdir():
        kept = tmp_path / "kept" / folder.name
        kept.mkdir(parents=True)
        (kept / "result.json").write_bytes((folder / "result.json").read_bytes())
        statistics = runs.read_sentences(folder, task)
        assert statistics is not None
        runs.write_sentences(kept, statistics)
    whole, kept_tables = (tables(find_runs([tmp_path / name]), ["scores"])[0] for name in ("whole", "kept"))
    assert whole == kept_tables
    assert all(column.startswith("p against softmax") for column in whole.columns[1:])
    assert len(whole.columns) == (4 if task == "summarization" else 2)
    assert all(cell is not None and cell.mean < 0.01 for cell in whole.rows[1][1][1:])


def test_seeds_are_not_taken_for_new_sentences(tmp_path: Path) -> None:
    texts = ["neutral"] * 40
    worse = ["contradiction"] * 4 + texts[4:]
    for seeds in (1, 5):
        for mapping, outputs in (("softmax", texts), ("sparsemax", worse)):
            for seed in range(seeds):
                config = make("entailment", "small", {"mapping": mapping, "seed": seed})
                found = Result({"accuracy": 1.0}, {}, outputs=outputs, references=[("neutral",)] * 40)
                runs.write_result(tmp_path / str(seeds) / f"{mapping}-{seed}", config, found, [])
    one, five = (tables(find_runs([tmp_path / name]), ["scores"])[0].rows[1][1][1] for name in ("1", "5"))
    assert one == five


def test_the_attention_of_older_results_is_not_mixed_with_that_of_outputs(tmp_path: Path) -> None:
    configured(tmp_path, "softmax", 0, 1.0)
    result(tmp_path / "older", "fusedmax", 0, data=["generated"])
    made = tables(find_runs([tmp_path]), ["attention"])
    assert [(table.title.partition(": ")[2], [name for name, _ in table.rows]) for table in made[:2]] == [
        ("attention on the model's output", ["softmax"]),
        ("attention on the reference", ["fusedmax"]),
    ]
    assert made[2].title.endswith("alignment, the reference fed to the model")


def test_a_run_of_which_the_configuration_is_unknown_is_not_averaged_with_others(tmp_path: Path) -> None:
    configured(tmp_path, "softmax", 0, 1.0)
    result(tmp_path / "older", "softmax", 1, data=["generated"])
    (scores,) = tables(find_runs([tmp_path]), ["scores"])
    assert [name for name, _ in scores.rows] == ["softmax", "softmax #2"]


def test_folders_without_a_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="No finished run found"):
        find_runs([tmp_path])
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(ExperimentError, match=r"result.json is not the result of a run"):
        tables(find_runs([tmp_path]))


def test_the_commands_train_evaluate_and_tabulate(tmp_path: Path, capsys: Captured) -> None:
    sizes = ["--generated", "30", "--epochs", "1", "--words", "8", "--hidden", "8", "--mapping", "sparsemax"]
    out = tmp_path / "runs" / "one"
    assert main(["train", "entailment", *sizes, "--out", str(out)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(out)
    assert {path.name for path in out.iterdir()} == {
        "best.safetensors", "config.json", "examples.json", "history.json", "last.safetensors", "outputs.txt",
        "references.txt", "result.json", "tensorboard", "vocabulary.txt",
    }  # fmt: skip
    before = {path: path.read_bytes() for path in out.iterdir() if path.is_file()}
    assert main(["evaluate", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["scores"] == json.loads((out / "result.json").read_text())["scores"]
    assert {path: path.read_bytes() for path in out.iterdir() if path.is_file()} == before
    assert main(["table", str(tmp_path), "--format", "markdown"]) == 0
    assert "| sparsemax |" in capsys.readouterr().out


def test_a_command_that_cannot_work_says_why_in_one_line(tmp_path: Path, capsys: Captured) -> None:
    assert main(["train", "translation", "--mapping", "hardmax", "--out", str(tmp_path / "run")]) == 2
    names = "softmax, sparsemax, fusedmax, oscarmax, sqpnormmax, entmax"
    assert capsys.readouterr().err == f"regmax train: `mapping` must be one of {names}. Got 'hardmax'.\n"
    assert main(["train", "translation", "--train", "a", "b", "--out", str(tmp_path / "run")]) == 2
    assert "`train`, `dev` and `test` must be given together" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path)]) == 2
    assert "config.json is missing" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
