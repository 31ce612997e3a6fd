"""`regmax train`: one of the paper's experiments with one mapping."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regmax.cli.errors import CommandError

if TYPE_CHECKING:
    from regmax.experiments.config import Config


def run(arguments: Sequence[str]) -> int:
    """Train, test, and say where the run is."""
    try:
        from regmax.experiments import overrides
        from regmax.experiments import run as runs
        from regmax.experiments.config import TASKS, make
        from regmax.experiments.errors import ExperimentError
    except ModuleNotFoundError as error:
        raise CommandError(f"{error.name} is missing: `pip install 'regmax[experiments]'`.") from error
    parser = argparse.ArgumentParser(prog="regmax train", description=_ABOUT)
    tasks = parser.add_subparsers(dest="task", required=True, metavar="{" + ",".join(TASKS) + "}")
    for task in TASKS:
        command = tasks.add_parser(task, formatter_class=_Formatter)
        command.add_argument(
            "--out", type=Path, metavar="FOLDER", help="the run's folder (runs/TASK-MAPPING-SEED)"
        )
        command.add_argument("--resume", action="store_true", help="continue the run in that folder")
        overrides.add_fields(command, task)
    options = parser.parse_args(arguments)
    try:
        given = overrides.given(options, options.task)
        config = make(options.task, options.config, given)
        folder = options.out or default_folder(config)
        result = (
            runs.resume(folder, {"task": options.task, **given})
            if options.resume
            else runs.train(config, folder)
        )
    except ExperimentError as error:
        raise CommandError(str(error)) from error
    if result is not None:
        show(result, folder)
    return 0


_ABOUT = "Train a model with one mapping on generated data, or on files; test its best state."


class _Formatter(argparse.HelpFormatter):
    """Wide enough for one field a line."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=36, width=110)


def default_folder(config: "Config") -> Path:
    """Where a run goes without `--out`."""
    return Path("runs", f"{config.task}-{config.mapping}-{config.seed}")


def show(result: dict[str, Any], folder: Path) -> None:
    """Print the scores, and the folder last."""
    for kind in ("scores", "attention", "speed"):
        for name, value in result[kind].items():
            sys.stdout.write(f"{name:<28}{value:12.2f}\n")
    sys.stdout.write(f"{folder}\n")
