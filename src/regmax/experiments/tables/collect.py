"""Results of runs, gathered by task and mapping."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from regmax.experiments.errors import ExperimentError
from regmax.experiments.training import runs
from regmax.names import MAPPINGS

VIEWS = ("scores", "attention", "speed")
_ATTENTION = ("support", "zeros", "segment length", "span length", "clusters", "cluster size", "entropy",
              "precision", "recall", "mass")  # fmt: skip
_RATIO = "words per second / softmax"
# In these columns more is better, and the best is marked; in the others it is a matter of taste.
_BETTER = ("BLEU", "accuracy", "ROUGE", "precision", "recall", "mass")


@dataclass(frozen=True)
class Cell:
    """A number over the seeds of one mapping."""

    mean: float
    deviation: float | None  # None: one seed
    best: bool = False


@dataclass(frozen=True)
class Table:
    """A title, the columns' names, and for each mapping its cells; None where nothing was measured."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]


def find_runs(folders: Iterable[Path]) -> list[Path]:
    """The finished runs among these folders and all below them."""
    found = sorted({result.parent for folder in folders for result in folder.rglob(runs.RESULT)})
    if not found:
        raise ExperimentError(f"No finished run found: no folder holds a {runs.RESULT}.")
    return found


def tables(folders: Sequence[Path], views: Sequence[str] = VIEWS) -> list[Table]:
    """The tables of the runs in `folders`: for each task and test set one of each view."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    seen: dict[tuple[str, ...], Path] = {}
    for folder in folders:
        result = runs.read_result(folder)
        group = result["task"], " ".join(result["data"])
        # The same seed twice is not a second draw but another configuration, which a mean would hide.
        other = seen.setdefault((*group, result["mapping"], str(result["seed"])), folder)
        if other != folder:
            raise ExperimentError(
                f"{other} and {folder} are two runs of one mapping and seed: name one of them."
            )
        groups.setdefault(group, []).append(result)
    return [
        table
        for (task, data), results in sorted(groups.items())
        for view in views
        for table in _view(f"{task}, {data}", view, results)
    ]


def _view(title: str, view: str, results: list[dict[str, Any]]) -> list[Table]:
    if view == "speed":
        return [_table(f"{title}: speed", [_with_ratio(result, results) for result in results])]
    if view == "attention":
        kept = [_chosen(result, "attention", _ATTENTION) for result in results]
        return [_table(f"{title}: attention", kept)]
    names = list(results[0]["scores"])
    if not any("ROUGE" in name for name in names):
        return [_table(title, [_chosen(r, "scores", [n for n in names if n != "loss"]) for r in results])]
    parts = {"F1": [n for n in names if " f1" in n], "ROUGE-L": [n for n in names if n.startswith("ROUGE-L")]}
    return [
        _table(f"{title}: {part}", [_chosen(r, "scores", c) for r in results]) for part, c in parts.items()
    ]


def _chosen(result: dict[str, Any], kind: str, names: Sequence[str]) -> dict[str, Any]:
    values = {name: result[kind][name] for name in names if name in result[kind]}
    return {"mapping": result["mapping"], "values": values}


def _with_ratio(result: dict[str, Any], results: list[dict[str, Any]]) -> dict[str, Any]:
    values = dict(result["speed"])
    softmax = [r["speed"]["words per second"] for r in results if r["mapping"] == "softmax"]
    if softmax:
        values[_RATIO] = values["words per second"] / fmean(softmax)
    return {"mapping": result["mapping"], "values": values}


def _table(title: str, results: list[dict[str, Any]]) -> Table:
    columns = tuple(dict.fromkeys(name for result in results for name in result["values"]))
    present = {result["mapping"] for result in results}
    # The paper's order of the mappings.
    names = [*(name for name in MAPPINGS if name in present), *sorted(present - set(MAPPINGS))]
    cells = {(name, c): _cell([r["values"].get(c) for r in results if r["mapping"] == name]) for name in names
             for c in columns}  # fmt: skip
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
    # What is printed alike is marked alike.
    return Cell(cell.mean, cell.deviation, round(cell.mean, 2) == round(max(means), 2))
