"""Training and testing a run, and evaluating a finished one."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regmax.experiments import tasks
from regmax.experiments.config import Config
from regmax.experiments.tasks import Result
from regmax.experiments.training import checkpoints, runs
from regmax.experiments.training.distributed import World, join
from regmax.experiments.training.loop import Trainer


def train(config: Config, folder: Path) -> dict[str, Any] | None:
    """Train in a new folder and test the best model; returns the result in the first process, None in the others."""
    with join(config.device) as world:
        if world.first:
            runs.create(config, folder)
        world.from_first(None)
        return _train(config, folder, world)


def resume(folder: Path, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Continue a run from its last checkpoint; a finished run is tested again."""
    config = runs.resume(folder, given)
    with join(config.device) as world:
        return _train(config, folder, world)


def evaluate(folder: Path, *, test: Sequence[str] = (), masks: str = "", beam: int = 0) -> Result:
    """Test the best model of a run, on its own test set or on other files; writes nothing."""
    config = runs.resume(folder, {})
    changes: dict[str, Any] = {"test": tuple(test), "masks": masks} if test else {}
    if beam:
        changes["beam"] = beam
    names = {field.name for field in dataclasses.fields(config)}
    config = dataclasses.replace(config, **{name: value for name, value in changes.items() if name in names})
    with join(config.device) as world:
        task = tasks.restore(config, folder, world.device)
        tensors, _ = checkpoints.read(folder / runs.BEST)
        checkpoints.load_model(task.model, tensors, folder / runs.BEST)
        return task.test()


def _train(config: Config, folder: Path, world: World) -> dict[str, Any] | None:
    trainer = Trainer(config, folder, world)
    trainer.run()
    if not world.first:
        return None
    tensors, _ = checkpoints.read(folder / runs.BEST)
    checkpoints.load_model(trainer.task.model, tensors, folder / runs.BEST)
    runs.write_result(folder, config, trainer.task.test(), json.loads((folder / runs.HISTORY).read_text()))
    return runs.read_result(folder)
