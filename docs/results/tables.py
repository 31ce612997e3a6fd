"""Write the tables of the README and of real-data.md from the kept results: `python docs/results/tables.py [--check]`.

The table of all tasks has one row per mapping with the paper's strengths, and one for fusedmax with a growing lam. A
cell is the mean over seeds, with the deviation if there are several, or a dash if there is no run. `--check` writes
nothing and fails if a page is out of date.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from regmax.experiments.tables import FORMATS, find_runs, tables
from regmax.experiments.training.runs import read_result
from regmax.files import write_atomically
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
ROWS = {mapping: mapping for mapping in MAPPINGS}  # by the part of a run's name between task and seed
ROWS["fusedmax"] += ", lam = 0.1"
ROWS["fusedmax-grown-1"] = "fusedmax, lam growing to 1"
_MISSING = "—"
_SUMMARY = re.compile(r"^\| attention \| en–de BLEU .*?(?=^(?!\|))", re.MULTILINE | re.DOTALL)
_ALL = re.compile(r"(?<=^## All tables\n\n).*\Z", re.MULTILINE | re.DOTALL)
_ABOUT = """\
`regmax table docs/results/runs --show scores attention --format markdown` prints them. A segment is a maximal sequence
of adjacent words with exactly equal nonzero weights, a cluster is all words with one weight. *Mass* is the weight on
the word that is copied; *precision* is how often a word with weight is that word.

"""

Scores = Mapping[tuple[str, str, str], Sequence[float]]  # of the seeds, by task, row and score


def scores(folders: Sequence[Path]) -> Scores:
    """The scores and lengths of segments of the runs that are named TASK-ROW-SEED."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for folder in folders:
        task, row, seed = _parts(folder.name)
        if row in ROWS and seed.isdigit():
            result = read_result(folder)
            for name, value in [*result["scores"].items(), (LENGTH, result["attention"][LENGTH])]:
                found.setdefault((task, row, name), []).append(value)
    return found


def _parts(name: str) -> tuple[str, str, str]:
    task = next(task for task, _ in COLUMNS.values() if name.startswith(task))
    row, _, seed = name.removeprefix(f"{task}-").rpartition("-")
    return task, row, seed


def summary(found: Scores) -> str:
    """One table with a column per task and score, the best of each column in bold, then the lengths of segments."""
    lines = [f"| attention | {' | '.join([*COLUMNS, LENGTHS[0]])} |", "|---|" + "---:|" * (len(COLUMNS) + 1)]
    for row in sorted(ROWS, key=lambda row: list(MAPPINGS).index(row.partition("-")[0])):
        cells = [_cell(found, task, row, score) for task, score in COLUMNS.values()]
        lengths = [_mean(found.get((task, row, LENGTH))) for task in LENGTHS[1]]
        lines.append(f"| {ROWS[row]} | {' | '.join([*cells, ', '.join(lengths)])} |")
    return "\n".join(lines) + "\n"


def _cell(found: Scores, task: str, row: str, score: str) -> str:
    values = found.get((task, row, score))
    if values is None:
        return _MISSING
    means = {other: _mean(found[task, other, score]) for other in ROWS if (task, other, score) in found}
    best = means[row] == max(means.values(), key=float)
    text = means[row] + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")
    return f"**{text}**" if best else text


def _mean(values: Sequence[float] | None) -> str:
    return _MISSING if values is None else f"{fmean(values):.2f}"


def missing(found: Scores) -> list[str]:
    """The mappings and numbers of seeds that three seeds of every table lack."""
    return [
        f"{task} {mapping}: {len(found.get((task, mapping, score), ()))} of 3 seeds"
        for task, score in dict(COLUMNS.values()).items()
        for mapping in MAPPINGS
        if len(found.get((task, mapping, score), ())) < 3
    ]


def pages(folders: Sequence[Path]) -> dict[Path, str]:
    """The pages as they should be."""
    table = summary(scores(folders))
    every = _ABOUT + FORMATS["markdown"](tables(folders, ("scores", "attention")))
    old: Any = {path: path.read_text(encoding="utf-8") for path in (README, PAGE)}
    made = {path: _replaced(_SUMMARY, table, text) for path, text in old.items()}
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
