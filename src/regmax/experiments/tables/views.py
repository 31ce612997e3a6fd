"""The columns of each table."""

import re
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

# The attention columns by their name in the table: the structure, and how well it finds the known alignment.
_SHAPE = {
    "zeros %": "zeros",
    "support": "support",
    "segments": "segments",
    "segment length": "segment length",
    "clusters": "clusters",
    "cluster size": "cluster size",
    "entropy": "entropy",
}
_ALIGNMENT = {"precision %": "precision", "recall %": "recall", "mass %": "mass"}
_ROUGE = re.compile(r"(ROUGE-\S+) (precision|recall|f1)(.*)")
# A row of a table before seeds are averaged: a mapping, and its values by column.
Row = tuple[str, dict[str, float]]
Results = list[dict[str, Any]]


def _scores(results: Results) -> dict[str, list[Row]]:
    names = list(results[0]["scores"])
    parts = _rouge(names) or {"": {name: name for name in names if name != "loss"}}
    return {part: _chosen(results, "scores", columns) for part, columns in parts.items()}


def _rouge(names: Sequence[str]) -> dict[str, dict[str, str]]:
    """The paper's two tables of summaries, truncated and not: the F1 of every measure, and the parts of ROUGE-L."""
    parts: dict[str, dict[str, str]] = {}
    for name in names:
        if found := _ROUGE.fullmatch(name):
            measure, part, truncated = found.groups()
            if part == "f1":
                parts.setdefault(f"F1{truncated}", {})[measure] = name
            if measure == "ROUGE-L":
                parts.setdefault(f"ROUGE-L{truncated}", {})[part] = name
    return parts


def _attention(results: Results) -> dict[str, list[Row]]:
    parts = {
        "attention": _chosen(results, "attention", _SHAPE),
        "alignment": _chosen(results, "attention", _ALIGNMENT),
    }
    return {part: rows for part, rows in parts.items() if any(values for _, values in rows)}


def _chosen(results: Results, kind: str, columns: Mapping[str, str]) -> list[Row]:
    return [
        (
            result["mapping"],
            {column: result[kind][name] for column, name in columns.items() if name in result[kind]},
        )
        for result in results
    ]


def _speed(results: Results) -> dict[str, list[Row]]:
    rows = [(result["mapping"], dict(result["speed"])) for result in results]
    softmax = [values["words per second"] for mapping, values in rows if mapping == "softmax"]
    for _, values in rows:
        if softmax:
            values["words per second / softmax"] = values["words per second"] / fmean(softmax)
    return {"speed": rows}


# For each view, the rows of its tables by the suffix of the title.
VIEWS: dict[str, Callable[[Results], dict[str, list[Row]]]] = {
    "scores": _scores,
    "attention": _attention,
    "speed": _speed,
}
