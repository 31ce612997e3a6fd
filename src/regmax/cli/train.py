"""`regmax train`: one of the paper's experiments with one mapping."""

import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from regmax.cli.errors import InterruptError
from regmax.cli.experiments import one_line_errors, packages, print_result
from regmax.cli.parser import Parser

if TYPE_CHECKING:
    from regmax.experiments.config import Config

_ABOUT = """\
Train a model with one mapping, on generated data or on files, and test its best checkpoint.
`regmax train TASK --help` lists the options of a task."""
_TASKS = {
    "translation": "an LSTM encoder-decoder on parallel text (BLEU)",
    "entailment": "two GRU encoders on SNLI's sentence pairs (accuracy)",
    "summarization": "the translation model on articles and titles (ROUGE)",
}


def run(arguments: Sequence[str]) -> int:
    """Train, test, print the scores, and print the run's folder last."""
    with packages():
        from regmax.experiments import overrides
        from regmax.experiments import run as runs
        from regmax.experiments.config import make
        from regmax.experiments.data import hub
    options = parser().parse(arguments)
    with one_line_errors():
        given = overrides.given(options, options.task)
        if options.hub:
            given |= hub.download(options.hub, options.hub_columns, options.hub_data)
        config = make(options.task, options.config, given)
        folder = options.out or _default_folder(config)
        try:
            result = (
                runs.resume(folder, {"task": options.task, **given})
                if options.resume
                else runs.train(config, folder)
            )
        except KeyboardInterrupt:
            again = f"regmax train {options.task} --resume --out {quote(str(folder))}"
            raise InterruptError(f"interrupted: `{again}` continues from the last checkpoint.") from None
    if result is not None:  # with several processes, only the first has it
        _show(result, folder)
    return 0


def parser() -> Parser:
    """The options of the command, for each task."""
    from regmax.experiments import overrides
    from regmax.experiments.config import TASKS
    from regmax.experiments.data.hub import COLUMNS

    made = Parser(prog="regmax train", description=_ABOUT)
    tasks = made.add_subparsers(dest="task", required=True, metavar="TASK", title="tasks")
    for task in TASKS:
        command = tasks.add_parser(
            task,
            help=_TASKS[task],
            description=f"Train and test {_TASKS[task]}.",
            usage=f"regmax train {task} [options]",
        )
        where = "the run folder (runs/TASK-MAPPING-SEED)"
        command.add_argument("--out", type=Path, metavar="FOLDER", help=where)
        command.add_argument("--resume", action="store_true", help="continue the run in that folder")
        overrides.add_fields(command, task)
        _add_hub(command, COLUMNS[task])
    return made


def _add_hub(command: Parser, columns: Sequence[str]) -> None:
    group = command.add_argument_group(
        "Hugging Face dataset", "requires the package `datasets` and network access"
    )
    group.add_argument("--hub", metavar="NAME", help="dataset name, e.g. owner/name")
    listed = f"dataset columns ({' '.join(columns)})"
    group.add_argument("--hub-columns", nargs=len(columns), default=columns, metavar="COLUMN", help=listed)
    where = "folder in which the downloaded files are cached (%(default)s)"
    group.add_argument("--hub-data", type=Path, default=Path("data"), metavar="FOLDER", help=where)


def _default_folder(config: "Config") -> Path:
    return Path("runs", f"{config.task}-{config.mapping}-{config.seed}")


def _show(result: dict[str, Any], folder: Path) -> None:
    print_result(result["scores"], result["attention"], result["attention_on"], result["speed"])
    sys.stdout.write(f"{folder}\n")
