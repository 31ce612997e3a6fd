"""Write the tables of the README and of real-data.md from the kept results: `python docs/results/tables.py [--check]`.

The table of all tasks has one row per mapping, and two for fusedmax: with the paper's lam and with the default. A cell
is the mean over seeds, with the deviation if there are several, or a dash if there is no run. The frontier has one row
per lam, and the options are those that all runs of a task share. `--check` writes nothing and fails if a page is out
of date.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from regmax.experiments.config import GROWTH, LAM, make
from regmax.experiments.tables import FORMATS, find_runs, tables
from regmax.experiments.training.runs import RESULT, read_result
from regmax.files import read_json, write_atomically
from regmax.mappings import MAPPINGS

HERE = Path(__file__).parent
PAGE, README = HERE / "real-data.md", HERE.parents[1] / "README.md"
COLUMNS = {  # the beginning of a run's name, and a score
    "en–de BLEU": ("en-de", "BLEU"),
    "de–en BLEU": ("de-en", "BLEU"),
    "SNLI accuracy": ("entailment", "accuracy"),
    "ROUGE-1": ("summarization", "ROUGE-1 f1"),
    "ROUGE-2": ("summarization", "ROUGE-2 f1"),
    "ROUGE-L": ("summarization", "ROUGE-L f1"),
}
LENGTH = "segment length"
LENGTHS = ("words per segment: en–de, SNLI, summaries", ("en-de", "entailment", "summarization"))
CONSTANT, DEFAULT = "fusedmax, constant lam = 0.1", "fusedmax, default lam"
ROWS = [row for name in MAPPINGS for row in ((CONSTANT, DEFAULT) if name == "fusedmax" else (name,))]
FRONTIER = {  # the score of each task, on the test set and, after the last epoch, on the development set
    "en-de": ("BLEU", "dev BLEU"),
    "entailment": ("accuracy", "dev accuracy"),
    "summarization": ("ROUGE-1 f1", "dev ROUGE-1 f1"),
}
_MISSING = "—"
_NOT_SHOWN = ("task", "preset", "generated", "seed", *GROWTH, "tensorboard", "device", "save_every")
_SUMMARY = re.compile(r"^\| attention \| en–de BLEU .*?(?=^(?!\|))", re.MULTILINE | re.DOTALL)
_FRONTIER = re.compile(r"^\| task \| attention \| seeds .*?(?=^(?!\|))", re.MULTILINE | re.DOTALL)
_OPTIONS = re.compile(r"^\| option .*?(?=^(?!\|))", re.MULTILINE | re.DOTALL)
_ALL = re.compile(r"(?<=^## All tables\n\n).*\Z", re.MULTILINE | re.DOTALL)
_ABOUT = """\
`regmax table docs/results/runs --show scores attention --format markdown` prints them. A segment is a maximal sequence
of adjacent words with exactly equal nonzero weights, a cluster is all words with one weight. *Mass* is the weight on
the word that is copied; *precision* is how often a word with weight is that word.

"""

Scores = Mapping[tuple[str, str, str], Sequence[float]]  # of the seeds, by task, row and score


def scores(folders: Sequence[Path]) -> Scores:
    """The scores and lengths of segments of the runs in the rows of the table."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for folder in folders:
        result = read_result(folder)
        task = next(task for task, _ in COLUMNS.values() if folder.name.startswith(task))
        for row in _rows(result["config"]):
            for name, value in [*result["scores"].items(), (LENGTH, result["attention"][LENGTH])]:
                found.setdefault((task, row, name), []).append(value)
    return found


def _rows(config: Mapping[str, Any]) -> list[str]:
    """The rows that a run belongs to: a default lam may be constant."""
    if config["mapping"] != "fusedmax":
        return [config["mapping"]]
    default = make(config["task"], config["preset"], {"mapping": "fusedmax"})
    is_default = all(config[name] == getattr(default, name) for name in ("lam", *GROWTH))
    is_constant = config["lam"] == LAM["fusedmax"] and not config["grow_end"]
    return [row for row, holds in ((CONSTANT, is_constant), (DEFAULT, is_default)) if holds]


def summary(found: Scores) -> str:
    """One table with a column per task and score, the best of each column in bold, then the lengths of segments."""
    lines = [f"| attention | {' | '.join([*COLUMNS, LENGTHS[0]])} |", "|---|" + "---:|" * (len(COLUMNS) + 1)]
    for row in ROWS:
        cells = [_cell(found, task, row, score) for task, score in COLUMNS.values()]
        lengths = [_mean(found.get((task, row, LENGTH))) for task in LENGTHS[1]]
        lines.append(f"| {row} | {' | '.join([*cells, ', '.join(lengths)])} |")
    return "\n".join(lines) + "\n"


def _cell(found: Scores, task: str, row: str, score: str) -> str:
    values = found.get((task, row, score))
    if values is None:
        return _MISSING
    means = {other: _mean(found[task, other, score]) for other in ROWS if (task, other, score) in found}
    best = means[row] == max(means.values(), key=float)
    return f"**{_text(values)}**" if best else _text(values)


def _text(values: Sequence[float] | None) -> str:
    return _mean(values) + (f" ± {stdev(values):.2f}" if values and len(values) > 1 else "")


def _mean(values: Sequence[float] | None) -> str:
    return _MISSING if values is None else f"{fmean(values):.2f}"


def frontier(folders: Sequence[Path]) -> str:
    """Scores against the length of segments: softmax, sparsemax, and fusedmax by lam."""
    columns = (
        "task",
        "attention",
        "seeds",
        "development score",
        "test score",
        "words per segment",
        "support",
    )
    lines = [f"| {' | '.join(columns)} |", "|---|---|" + "---:|" * (len(columns) - 2)]
    for task, names in FRONTIER.items():
        rows: dict[str, list[dict[str, Any]]] = {}
        for result in sorted(
            (read_json(path / RESULT) for path in folders if path.name.startswith(task)), key=_order
        ):
            if result["mapping"] in ("softmax", "sparsemax", "fusedmax"):
                rows.setdefault(_label(result["config"]), []).append(result)
        for label, results in rows.items():
            cells = [_text(values) for values in _measured(results, *names)]
            lines.append(f"| {task} | {label} | {len(results)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _order(result: dict[str, Any]) -> tuple[Any, ...]:
    config = result["config"]
    return list(MAPPINGS).index(config["mapping"]), config["lam"], config["grow_end"]


def _label(config: Mapping[str, Any]) -> str:
    name, lam, begin, end = (config[field] for field in ("mapping", "lam", "grow_begin", "grow_end"))
    if not lam:
        return str(name)
    return (
        f"{name}, lam {f'growing to {lam:g} ({100 * begin:g} to {100 * end:g} %)' if end else f'= {lam:g}'}"
    )


def _measured(results: Sequence[dict[str, Any]], test: str, development: str) -> list[list[float] | None]:
    """The columns of a row of the frontier, for each seed; None if a run was kept without its history."""
    histories = [result.get("history") for result in results]
    return [
        [history[-1][development] for history in histories] if all(histories) else None,
        [result["scores"][test] for result in results],
        *([result["attention"][name] for result in results] for name in (LENGTH, "support")),
    ]


def options(folders: Sequence[Path]) -> str:
    """The options of `regmax train` that all runs of a task share; those that differ between its runs are omitted."""
    tasks = tuple(dict.fromkeys(task for task, _ in COLUMNS.values()))
    shared: dict[str, dict[str, str]] = {}
    for task in tasks:
        configs = [read_result(path)["config"] for path in folders if path.name.startswith(task)]
        for name in dict.fromkeys(name for config in configs for name in config):
            values = {_option(config.get(name, "")) for config in configs}
            if len(values) == 1 and name not in _NOT_SHOWN:
                shared.setdefault(name, {})[task] = values.pop()
    lines = [f"| option | {' | '.join(tasks)} |", "|---|" + "---|" * len(tasks)]
    for name, found in shared.items():
        lines.append(f"| {name} | {' | '.join(found.get(task, '') for task in tasks)} |")
    return "\n".join(lines) + "\n"


def _option(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(value) if isinstance(value, list) else str(value)


def missing(found: Scores) -> list[str]:
    """The rows and numbers of seeds that three seeds of every table lack."""
    return [
        f"{task} {row}: {len(found.get((task, row, score), ()))} of 3 seeds"
        for task, score in dict(COLUMNS.values()).items()
        for row in ROWS
        if len(found.get((task, row, score), ())) < 3
    ]


def pages(folders: Sequence[Path]) -> dict[Path, str]:
    """The pages as they should be."""
    table = summary(scores(folders))
    every = _ABOUT + FORMATS["markdown"](tables(folders, ("scores", "attention")))
    old: Any = {path: path.read_text(encoding="utf-8") for path in (README, PAGE)}
    made = {path: _replaced(_SUMMARY, table, text) for path, text in old.items()}
    made[PAGE] = _replaced(_FRONTIER, frontier(folders), made[PAGE])
    made[PAGE] = _replaced(_OPTIONS, options(folders), made[PAGE])
    made[PAGE] = _replaced(_ALL, every, made[PAGE])
    return made


def _replaced(pattern: re.Pattern[str], new: str, text: str) -> str:
    made, number = pattern.subn(lambda _: new, text)
    if number != 1:
        raise SystemExit(f"{pattern.pattern!r} occurs {number} times instead of once.")
    return made


def main(arguments: Sequence[str]) -> int:
    """Write or check the pages, and say what has not been trained."""
    folders = find_runs([HERE / "runs"])
    made = pages(folders)
    stale = [path for path, text in made.items() if path.read_text(encoding="utf-8") != text]
    if "--check" in arguments:
        print(
            *(f"{path} differs from the kept results: run docs/results/tables.py" for path in stale), sep="\n"
        )
        return len(stale)
    for path in stale:
        write_atomically(path, made[path])
    print(*missing(scores(folders)), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
