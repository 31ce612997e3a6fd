"""Datasets of the Hugging Face hub, saved as files for the other readers.

Optional, and the only part of regmax that needs a network. Missing requirements are reported before files are written.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from regmax.experiments.config import Files
from regmax.experiments.data.snli import LABELS, MISSING
from regmax.experiments.errors import ExperimentError
from regmax.extras import how_to_install
from regmax.files import write_atomically

# The usual column names of each task.
COLUMNS = {
    "translation": ("en", "de"),
    "entailment": ("premise", "hypothesis", "label"),
    "summarization": ("document", "summary"),
}
# Our sets, and their names in datasets.
_SETS = {"train": ("train",), "dev": ("validation", "dev", "valid"), "test": ("test",)}
_INSTEAD = "Or give files of your own: `--train`, `--dev` and `--test`."
_TIMEOUT = 10.0  # seconds to wait for the hub
Record = Mapping[str, Any]


def download(name: str, columns: Sequence[str], data: Path) -> dict[str, Files]:
    """The training, development and test files of a dataset; files in its folder are not downloaded again.

    Args:
        name: the dataset's name on the hub, e.g. `owner/name`.
        columns: a source and a target, for line-parallel files; or a premise, a hypothesis and a label, for SNLI's JSON
            lines.
        data: the files are written to a subfolder with the dataset's name.
    """
    folder = data / name.replace("/", "--")
    ends = [".jsonl"] if len(columns) == 3 else [f".{column}" for column in columns]
    paths = {own: [folder / f"{own}{end}" for end in ends] for own in _SETS}
    if not all(path.exists() for files in paths.values() for path in files):
        found = _load(name)
        texts = {own: _lines(_split(found, own, name), columns) for own in paths}
        folder.mkdir(parents=True, exist_ok=True)
        for own, files in paths.items():
            for path, lines in zip(files, texts[own], strict=True):
                write_atomically(path, "".join(f"{line}\n" for line in lines))
    return {own: tuple(map(str, files)) for own, files in paths.items()}


def _load(name: str) -> Mapping[str, Iterable[Record]]:
    try:
        from datasets import load_dataset
        from huggingface_hub import HfApi
    except ModuleNotFoundError as error:
        raise ExperimentError(f"`--hub` needs {error.name}: {how_to_install('hub')}. {_INSTEAD}") from None
    try:
        # A quick request first: loading would retry many times without a connection.
        HfApi().dataset_info(name, timeout=_TIMEOUT)
        loaded: Mapping[str, Iterable[Record]] = load_dataset(name)
    except Exception as error:  # every version of the libraries raises different exceptions
        raise ExperimentError(f"`--hub {name}` cannot be read: {error}. {_INSTEAD}") from error
    return loaded


def _split(found: Mapping[str, Iterable[Record]], own: str, name: str) -> Iterable[Record]:
    for theirs in _SETS[own]:
        if theirs in found:
            return found[theirs]
    raise ExperimentError(f"`--hub {name}` has no {own} set, only {', '.join(found)}. {_INSTEAD}")


def _lines(records: Iterable[Record], columns: Sequence[str]) -> list[tuple[str, ...]]:
    """The lines of each file."""
    write: Callable[[Record], list[str]] = _json_line if len(columns) == 3 else _texts
    try:
        rows = [
            write({name: record.get("translation", record)[name] for name in columns}) for record in records
        ]
    except KeyError as error:
        raise ExperimentError(
            f"The dataset has no column {error}: choose others with `--hub-columns`."
        ) from None
    return list(zip(*rows, strict=True))


def _texts(record: Record) -> list[str]:
    return [" ".join(str(text).split()) for text in record.values()]  # one line each


def _json_line(record: Record) -> list[str]:
    premise, hypothesis, label = record.values()
    gold = LABELS[label] if label in range(len(LABELS)) else MISSING
    return [json.dumps({"gold_label": gold, "sentence1": premise, "sentence2": hypothesis})]
