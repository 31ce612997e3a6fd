"""Run folders: the names of their files, and protection against overwriting."""

import dataclasses
import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regmax.experiments import config as configs
from regmax.experiments.config import Config
from regmax.experiments.errors import ExperimentError
from regmax.experiments.metrics.sentences import Sentences, sentences
from regmax.experiments.tasks import Result
from regmax.files import is_leftover, read_json, remove_leftovers, write_atomically

CONFIG = "config.json"
LAST = "last.safetensors"  # all state for resuming
BEST = "best.safetensors"  # the model of the best dev score
HISTORY = "history.json"  # the scores after each epoch
RESULT = "result.json"  # the scores on the test set
EXAMPLES = "examples.json"  # words, scores and weights of some test sentences, for the plots
OUTPUTS = "outputs.txt"  # what the model wrote for each test sentence
REFERENCES = "references.txt"  # what it should have written: references separated by tabs
SENTENCES = (
    "sentences.json.gz"  # the statistics of each test sentence, for runs that are kept without their outputs
)
EVALUATIONS = "evaluations"  # a folder for each evaluation on other files, with a result
TENSORBOARD = "tensorboard"
_SPEED = {"seconds per epoch": "seconds", "words per second": "words per second"}


def create(config: Config, folder: Path) -> None:
    """Create a run folder; an existing one must be empty."""
    if folder.exists() and not all(map(is_leftover, folder.iterdir())):
        raise ExperimentError(
            f"{folder} is not empty: `--resume` continues its run, another `--out` starts a new one."
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / CONFIG, configs.dumps(config).encode())


def resume(folder: Path, given: Mapping[str, Any]) -> Config:
    """The configuration of an existing run; options of the command must not contradict it."""
    if not (folder / CONFIG).exists():
        raise ExperimentError(f"{folder} holds no run to resume: {CONFIG} is missing.")
    config = configs.load(folder / CONFIG)
    for name, value in given.items():
        if getattr(config, name) != value:
            raise ExperimentError(f"The run in {folder} has {name}={getattr(config, name)!r}. Got {value!r}.")
    return config


def start_or_continue(folder: Path) -> str:
    """Prepare a run to go on; a sentence for the user if it has no checkpoint and starts over."""
    remove_leftovers(folder)
    if (folder / LAST).exists():
        return ""
    if lost := [name for name in (BEST, HISTORY, RESULT) if (folder / name).exists()]:
        raise ExperimentError(
            f"{folder} cannot be resumed: it has a {lost[0]} but no {LAST}. Start a new run in another folder."
        )
    return f"{folder} has no {LAST} yet: training starts from the beginning."


def write_result(folder: Path, config: Config, result: Result, history: list[dict[str, float]]) -> None:
    """Write the test scores with everything that a table needs, the outputs and the examples."""
    speed = {name: [record[column] for record in history] for name, column in _SPEED.items()}
    record = {
        "task": config.task,
        "mapping": config.mapping,
        "seed": config.seed,
        "data": [Path(file).name for file in config.test] or ["generated"],
        "config": dataclasses.asdict(config),
        "scores": result.scores,
        "attention": result.attention,
        "attention_on": result.attention_on,
        "signature": result.signature,
        "speed": {name: sum(values) / len(values) for name, values in speed.items() if values},
    }
    _write_lines(folder / OUTPUTS, result.outputs)
    if result.references:
        _write_lines(folder / REFERENCES, ["\t".join(references) for references in result.references])
    write_atomically(folder / EXAMPLES, json.dumps(result.examples, ensure_ascii=False) + "\n")
    write_atomically(folder / RESULT, json.dumps(record, indent=1) + "\n")


def check_evaluation(folder: Path) -> None:
    """Raise if an evaluation must not be written to a folder, because a run is there."""
    if (folder / BEST).exists() or (folder / LAST).exists():
        raise ExperimentError(
            f"{folder} holds a run whose result would be overwritten: choose another `--out`."
        )


def write_evaluation(folder: Path, config: Config, result: Result) -> None:
    """Write the result of a run on other data, where the tables find it and the pictures can read it."""
    write_atomically(folder / CONFIG, configs.dumps(config))
    write_result(folder, config, result, [])


def read_result(folder: Path) -> dict[str, Any]:
    """Read a result written by `write_result`; results of older versions have no `config` and no `attention_on`."""
    path = folder / RESULT
    if not path.exists():
        raise ExperimentError(f"{folder} holds no finished run: {RESULT} is missing.")
    try:
        record = read_json(path)
        known = {
            name: record[name] for name in ("task", "mapping", "seed", "data", "scores", "attention", "speed")
        }
        config = record["config"] if "config" in record else _older_config(folder)
        older = "" if record["task"] == "entailment" else "the reference"
        named = {"task": record["task"], "mapping": record["mapping"]}
        return {
            **known,
            "config": {**config, **named},
            "attention_on": record.get("attention_on", older),
            "folder": folder,
        }
    except (ValueError, KeyError, TypeError) as error:
        raise ExperimentError(f"{path} is not the result of a run: {error}.") from error


def read_sentences(folder: Path, task: str) -> Sentences | None:
    """The statistics of a run's test sentences, kept or computed from its outputs; None if it has neither."""
    if (folder / SENTENCES).exists():
        return Sentences.from_json(json.loads(gzip.decompress((folder / SENTENCES).read_bytes())))
    if not (folder / OUTPUTS).exists() or not (folder / REFERENCES).exists():
        return None
    texts, references = (_read_lines(folder / name) for name in (OUTPUTS, REFERENCES))
    return sentences(task, texts, [tuple(line.split("\t")) for line in references])


def write_sentences(folder: Path, found: Sentences) -> None:
    """Write statistics where `read_sentences` finds them; equal ones have equal bytes."""
    text = json.dumps(found.to_json(), separators=(",", ":"))
    write_atomically(folder / SENTENCES, gzip.compress(text.encode(), mtime=0))


def _older_config(folder: Path) -> dict[str, Any]:
    return dict(read_json(folder / CONFIG)) if (folder / CONFIG).exists() else {}


def _write_lines(path: Path, lines: list[str]) -> None:
    write_atomically(path, "".join(f"{line}\n" for line in lines))


def _read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
