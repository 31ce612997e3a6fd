"""Results of runs, grouped by task, test set and configuration."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from regmax.experiments.errors import ExperimentError
from regmax.experiments.tables import labels
from regmax.experiments.tables.significance import P_VALUE
from regmax.experiments.tables.views import VIEWS, Row
from regmax.experiments.training import runs

# In these columns more is better, and the best is marked; in the others no value is better.
_BETTER = ("BLEU", "accuracy", "ROUGE", "f1", "precision", "recall", "mass")


@dataclass(frozen=True)
class Cell:
    """The mean over the seeds of one configuration."""

    mean: float
    deviation: float | None  # None: one seed
    best: bool = False
    digits: int = 2


@dataclass(frozen=True)
class Table:
    """A title, the columns' names, and the cells of each configuration; None if nothing was measured."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]


def find_runs(folders: Iterable[Path]) -> list[Path]:
    """The finished runs in these folders and their subfolders."""
    found = sorted({result.parent for folder in folders for result in folder.rglob(runs.RESULT)})
    if not found:
        raise ExperimentError(f"No finished run found: no folder holds a {runs.RESULT}.")
    return found


def tables(folders: Sequence[Path], views: Iterable[str] = VIEWS) -> list[Table]:
    """The tables of the runs in `folders`: one or two per task, test set and view.

    A row is a configuration, with mean and deviation over its seeds.
    """
    made = []
    for title, results in sorted(_groups(folders).items()):
        # One row for each configuration, in the paper's order of the mappings.
        results.sort(key=lambda result: (labels.order(result["config"]), result["seed"]))
        named = labels.labels([result["config"] for result in results])
        results = [{**result, "label": label} for result, label in zip(results, named, strict=True)]
        for view in views:
            made += [_table(_titled(title, part), rows) for part, rows in VIEWS[view](results).items()]
    return made


def _groups(folders: Sequence[Path]) -> dict[str, list[dict[str, Any]]]:
    """The results by the title of their tables."""
    groups: dict[str, list[dict[str, Any]]] = {}
    seen: dict[tuple[Any, ...], Path] = {}
    for folder in folders:
        result = runs.read_result(folder)
        title = f"{result['task']}, {_data(result['data'])}"
        other = seen.setdefault((title, result["seed"], labels.key(result["config"])), folder)
        if other in folder.parents:  # an evaluation that repeats the run's own test
            continue
        if other != folder:
            # The same seed twice is not a second draw, and a mean would hide what differs.
            raise ExperimentError(
                f"{other} and {folder} are two runs of one configuration and seed: name one of them."
            )
        groups.setdefault(title, []).append(result)
    return groups


def _titled(title: str, part: str) -> str:
    return f"{title}: {part}" if part else title


def _data(files: Sequence[str]) -> str:
    """A short name of the test files: `test.en.gz` and `test.de.gz` are `test, en to de`."""
    names = [file.removesuffix(".gz") for file in files]
    stems, _, ends = zip(*(name.rpartition(".") for name in names), strict=True)
    if len(names) > 1 and len(set(stems)) == 1 and stems[0]:
        return f"{stems[0]}, {' to '.join(ends)}"
    return " ".join(names)


def _table(title: str, found: list[Row]) -> Table:
    columns = tuple(dict.fromkeys(column for _, values in found for column in values))
    names = list(dict.fromkeys(label for label, _ in found))
    cells = {
        (name, column): _cell(column, [values.get(column) for label, values in found if label == name])
        for name in names
        for column in columns
    }
    rows = tuple((name, tuple(_marked(cells, names, name, c) for c in columns)) for name in names)
    return Table(title, columns, rows)


def _cell(column: str, values: Sequence[float | None]) -> Cell | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    if column.startswith(P_VALUE):  # one number for all seeds
        return Cell(known[0], None, digits=3)
    return Cell(fmean(known), stdev(known) if len(known) > 1 else None)


def _marked(
    cells: dict[tuple[str, str], Cell | None], names: Sequence[str], name: str, column: str
) -> Cell | None:
    cell = cells[name, column]
    means = [other.mean for n in names if (other := cells[n, column]) is not None]
    if cell is None or len(means) < 2 or not column.startswith(_BETTER):
        return cell
    # Values that print the same are marked the same.
    return Cell(cell.mean, cell.deviation, round(cell.mean, 2) == round(max(means), 2))
