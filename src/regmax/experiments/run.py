"""Training and testing a run, and evaluating a finished one."""

import dataclasses
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regmax.experiments import tasks
from regmax.experiments.config import Config
from regmax.experiments.errors import ExperimentError
from regmax.experiments.tasks import Result, Task
from regmax.experiments.training import checkpoints, runs
from regmax.experiments.training.distributed import World, join
from regmax.experiments.training.loop import Trainer
from regmax.experiments.training.progress import Evaluation
from regmax.files import read_json


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
        if world.first:
            said = runs.start_or_continue(folder)
            if said:
                print(said, file=sys.stderr)
        return _train(config, folder, world)


def evaluate(
    folder: Path,
    *,
    test: Sequence[str] = (),
    masks: str = "",
    beam: int | None = None,
    out: Path | None = None,
    quiet: bool = False,
) -> tuple[Result, Path]:
    """Test the best model of a run, on its own test set or on other files; the run's own result stays as it is.

    Returns:
        The result, and the folder that it was written to, from which `regmax table` reads it: `out`, or one below
        `evaluations` in the run's folder.
    """
    config = runs.resume(folder, {})
    config = _changed(config, {"test": tuple(test), "masks": masks, "beam": beam})
    out = out or folder / runs.EVALUATIONS / _name(config)
    runs.check_evaluation(out)
    with join(config.device) as world:
        title = f"evaluating {folder} on {' '.join(config.test) or 'generated data'}"
        task = tasks.restore(config, folder, world.device)
        result = _test(task, folder / runs.BEST, title, quiet)
    runs.write_evaluation(out, config, result)
    return result, out


def _changed(config: Config, changes: dict[str, Any]) -> Config:
    given = {name: value for name, value in changes.items() if value}
    unknown = given.keys() - {field.name for field in dataclasses.fields(config)}
    if unknown:
        raise ExperimentError(f"`--{min(unknown)}` has no meaning for {config.task}.")
    if "test" in given and hasattr(config, "masks"):
        given.setdefault("masks", "")  # the run's own belong to its own test set
    return dataclasses.replace(config, **given)


def _name(config: Config) -> str:
    """The test files in a folder's name, and a number that changes with their place and with all options."""
    names = "_".join(Path(file).name.removesuffix(".gz") for file in config.test) or "generated"
    return f"{names[:80]}-{zlib.crc32(repr(config).encode()):08x}"


def _train(config: Config, folder: Path, world: World) -> dict[str, Any] | None:
    trainer = Trainer(config, folder, world)
    trainer.run()
    if not world.first:
        return None
    title = f"{config.task} {config.mapping} seed {config.seed} tests"
    result = _test(trainer.task, folder / runs.BEST, title, quiet=False)
    if result.complaint:
        print(f"Warning: {result.complaint}", file=sys.stderr)
    runs.write_result(folder, config, result, read_json(folder / runs.HISTORY))
    return runs.read_result(folder)


def _test(task: Task, best: Path, title: str, quiet: bool) -> Result:
    tensors, _ = checkpoints.read(best)
    checkpoints.load_model(task.model, tensors, best)
    with Evaluation(title, quiet=quiet) as evaluation:
        task.watch = evaluation.watch
        return task.test()
