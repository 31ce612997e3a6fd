"""Results of runs, grouped by task and mapping."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from regmax.experiments.errors import ExperimentError
from regmax.experiments.tables.views import VIEWS, Row
from regmax.experiments.training import runs
from regmax.mappings import MAPPINGS

# In these columns more is better, and the best is marked; in the others no value is better.
_BETTER = ("BLEU", "accuracy", "ROUGE", "f1", "precision", "recall", "mass")


@dataclass(frozen=True)
class Cell:
    """The mean over the seeds of one mapping."""

    mean: float
    deviation: float | None  # None: one seed
    best: bool = False


@dataclass(frozen=True)
class Table:
    """A title, the columns' names, and the cells of each mapping; None if nothing was measured."""

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
    """The tables of the runs in `folders`: one or two per task, test set and view."""
    groups: dict[str, list[dict[str, Any]]] = {}
    seen: dict[tuple[str, ...], Path] = {}
    for folder in folders:
        result = runs.read_result(folder)
        title = f"{result['task']}, {_data(result['data'])}"
        # The same seed twice is not a second draw but another configuration, which a mean would hide.
        other = seen.setdefault((title, result["mapping"], str(result["seed"])), folder)
        if other != folder:
            raise ExperimentError(
                f"{other} and {folder} are two runs of one mapping and seed: name one of them."
            )
        groups.setdefault(title, []).append(result)
    return [
        _table(title if not part else f"{title}: {part}", rows)
        for title, results in sorted(groups.items())
        for view in views
        for part, rows in VIEWS[view](results).items()
    ]


def _data(files: Sequence[str]) -> str:
    """A short name of the test files: `test.en.gz` and `test.de.gz` are `test, en to de`."""
    names = [file.removesuffix(".gz") for file in files]
    stems, _, ends = zip(*(name.rpartition(".") for name in names), strict=True)
    if len(names) > 1 and len(set(stems)) == 1 and stems[0]:
        return f"{stems[0]}, {' to '.join(ends)}"
    return " ".join(names)


def _table(title: str, found: list[Row]) -> Table:
    columns = tuple(dict.fromkeys(column for _, values in found for column in values))
    present = {mapping for mapping, _ in found}
    # The paper's order of the mappings.
    names = [*(name for name in MAPPINGS if name in present), *sorted(present - set(MAPPINGS))]
    cells = {
        (name, column): _cell([values.get(column) for mapping, values in found if mapping == name])
        for name in names
        for column in columns
    }
    rows = tuple((name, tuple(_marked(cells, names, name, c) for c in columns)) for name in names)
    return Table(title, columns, rows)


def _cell(values: Sequence[float | None]) -> Cell | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
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
