"""Run folders: the names of their files, and protection against overwriting."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regmax.experiments import config as configs
from regmax.experiments.config import Config
from regmax.experiments.errors import ExperimentError
from regmax.experiments.tasks import Result
from regmax.experiments.training.checkpoints import write_atomically

CONFIG = "config.json"
LAST = "last.safetensors"  # all state for resuming
BEST = "best.safetensors"  # the model of the best dev score
HISTORY = "history.json"  # the scores after each epoch
RESULT = "result.json"  # the scores on the test set
EXAMPLES = "examples.json"  # words, scores and weights of some test sentences, for the plots
OUTPUTS = "outputs.txt"
TENSORBOARD = "tensorboard"


def create(config: Config, folder: Path) -> None:
    """Create a run folder; an existing one must be empty."""
    if folder.exists() and any(path for path in folder.iterdir() if not path.name.endswith(".tmp")):
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


def write_result(folder: Path, config: Config, result: Result, history: list[dict[str, float]]) -> None:
    """Write the test scores with everything that a table needs, the outputs and the examples."""
    record = {
        "task": config.task,
        "mapping": config.mapping,
        "seed": config.seed,
        "data": [Path(file).name for file in config.test] or ["generated"],
        "scores": result.scores,
        "attention": result.attention,
        "signature": result.signature,
        "speed": {
            "seconds per epoch": sum(record["seconds"] for record in history) / max(len(history), 1),
            "words per second": sum(record["words per second"] for record in history) / max(len(history), 1),
        },
    }
    write_atomically(folder / OUTPUTS, "".join(f"{line}\n" for line in result.outputs).encode())
    write_atomically(folder / EXAMPLES, (json.dumps(result.examples, ensure_ascii=False) + "\n").encode())
    write_atomically(folder / RESULT, (json.dumps(record, indent=1) + "\n").encode())


def read_result(folder: Path) -> dict[str, Any]:
    """Read a result written by `write_result`."""
    path = folder / RESULT
    if not path.exists():
        raise ExperimentError(f"{folder} holds no finished run: {RESULT} is missing.")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: record[name] for name in ("task", "mapping", "seed", "data", "scores", "attention", "speed")
        }
    except (ValueError, KeyError, TypeError) as error:
        raise ExperimentError(f"{path} is not the result of a run: {error}.") from error
