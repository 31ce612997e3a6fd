"""What of a result goes into which table."""

from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any

# What is shown of the attention, by the name in the table: its shape, and how well it finds what is known to matter.
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
# A row of a table before seeds are averaged: a mapping, and its values by column.
Row = tuple[str, dict[str, float]]
Results = list[dict[str, Any]]


def _scores(results: Results) -> dict[str, list[Row]]:
    names = list(results[0]["scores"])
    if not any("ROUGE" in name for name in names):
        parts = {"": [name for name in names if name != "loss"]}
    else:
        rouge_l = [name for name in names if name.startswith("ROUGE-L")]
        parts = {"F1": [name for name in names if " f1" in name], "ROUGE-L": rouge_l}
    return {
        part: _chosen(results, "scores", {name: name for name in chosen}) for part, chosen in parts.items()
    }


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


# For each view the rows of its tables, by what is added to the title.
VIEWS: dict[str, Callable[[Results], dict[str, list[Row]]]] = {
    "scores": _scores,
    "attention": _attention,
    "speed": _speed,
}
