"""The columns of each table."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from regmax.experiments.tables.significance import P_VALUE, p_values

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
# A row of a table before seeds are averaged: a configuration's label, and its values by column.
Row = tuple[str, dict[str, float]]
Results = list[dict[str, Any]]


def _scores(results: Results) -> dict[str, list[Row]]:
    names = list(results[0]["scores"])
    parts = _rouge(names) or {"": {name: name for name in names if name != "loss"}}
    made = {part: _chosen(results, "scores", columns) for part, columns in parts.items()}
    baseline, found = p_values(results)
    for label, values in made.get("", made.get("F1", [])):
        for name, p in found.get(label, {}).items():
            of = f" ({name})" if len(found[label]) > 1 else ""
            values[f"{P_VALUE} {baseline}{of}"] = p
    return made


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
    """The attention's shape, by what it was taken on: results of older versions fed the reference to the model."""
    parts = {}
    for on in dict.fromkeys(result["attention_on"] for result in results):
        taken = [result for result in results if result["attention_on"] == on]
        parts[f"attention on {on}" if on else "attention"] = _chosen(taken, "attention", _SHAPE)
    on_reference = any(result["attention_on"] for result in results)
    alignment = "alignment, the reference fed to the model" if on_reference else "alignment"
    parts[alignment] = _chosen(results, "attention", _ALIGNMENT)
    return {part: rows for part, rows in parts.items() if any(values for _, values in rows)}


def _chosen(results: Results, kind: str, columns: Mapping[str, str]) -> list[Row]:
    return [
        (
            result["label"],
            {column: result[kind][name] for column, name in columns.items() if name in result[kind]},
        )
        for result in results
    ]


def _speed(results: Results) -> dict[str, list[Row]]:
    """Wall clock, without a ratio to softmax: the machine may have been busier during one of the runs."""
    rows = [(result["label"], dict(result["speed"])) for result in results]
    return {"speed by wall clock": rows} if any(values for _, values in rows) else {}


# For each view, the rows of its tables by the suffix of the title.
VIEWS: dict[str, Callable[[Results], dict[str, list[Row]]]] = {
    "scores": _scores,
    "attention": _attention,
    "speed": _speed,
}
