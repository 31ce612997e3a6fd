"""`regmax train`: one of the paper's experiments with one mapping."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regmax.cli.errors import CommandError

if TYPE_CHECKING:
    from regmax.experiments.config import Config

_ABOUT = "Train a model with one mapping on generated data, or on files; test its best state."


def run(arguments: Sequence[str]) -> int:
    """Train, test, print the scores, and print the run's folder last."""
    try:
        from regmax.experiments import overrides
        from regmax.experiments import run as runs
        from regmax.experiments.config import make
        from regmax.experiments.data import hub
        from regmax.experiments.errors import ExperimentError
    except ModuleNotFoundError as error:
        raise CommandError(f"{error.name} is missing: `pip install 'regmax[experiments]'`.") from error
    options = _parser().parse_args(arguments)
    try:
        given = overrides.given(options, options.task)
        if options.hub:
            given |= hub.download(options.hub, options.hub_columns, options.hub_data)
        config = make(options.task, options.config, given)
        folder = options.out or _default_folder(config)
        result = (
            runs.resume(folder, {"task": options.task, **given})
            if options.resume
            else runs.train(config, folder)
        )
    except ExperimentError as error:
        raise CommandError(str(error)) from error
    if result is not None:  # with several processes, only the first has it
        _show(result, folder)
    return 0


def _parser() -> argparse.ArgumentParser:
    from regmax.experiments import overrides
    from regmax.experiments.config import TASKS
    from regmax.experiments.data.hub import COLUMNS

    parser = argparse.ArgumentParser(prog="regmax train", description=_ABOUT)
    tasks = parser.add_subparsers(dest="task", required=True, metavar=f"{{{','.join(TASKS)}}}")
    for task in TASKS:
        command = tasks.add_parser(task, formatter_class=_Wide)
        command.add_argument(
            "--out", type=Path, metavar="FOLDER", help="the run's folder (runs/TASK-MAPPING-SEED)"
        )
        command.add_argument("--resume", action="store_true", help="continue the run in that folder")
        _add_hub(command, COLUMNS[task])
        overrides.add_fields(command, task)
    return parser


def _add_hub(command: argparse.ArgumentParser, columns: Sequence[str]) -> None:
    group = command.add_argument_group("a dataset of the Hugging Face hub", "needs `datasets`, and a network")
    group.add_argument("--hub", metavar="NAME", help="its name, e.g. owner/name")
    listed = f"its columns ({' '.join(columns)})"
    group.add_argument("--hub-columns", nargs=len(columns), default=columns, metavar="COLUMN", help=listed)
    where = "the folder that its files go to, and are taken from the next time (%(default)s)"
    group.add_argument("--hub-data", type=Path, default=Path("data"), metavar="FOLDER", help=where)


class _Wide(argparse.HelpFormatter):
    """Wide enough for one field per line."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=36, width=110)


def _default_folder(config: "Config") -> Path:
    return Path("runs", f"{config.task}-{config.mapping}-{config.seed}")


def _show(result: dict[str, Any], folder: Path) -> None:
    for kind in ("scores", "attention", "speed"):
        for name, value in result[kind].items():
            sys.stdout.write(f"{name:<28}{value:12.2f}\n")
    sys.stdout.write(f"{folder}\n")
