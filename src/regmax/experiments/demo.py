"""All five mappings on the generated translation task: two runs at a time, then the table."""

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from regmax.experiments.config import Config, dumps, make
from regmax.experiments.errors import ExperimentError
from regmax.experiments.tables import FORMATS, find_runs, tables
from regmax.experiments.training import runs
from regmax.names import MAPPINGS

_FIELDS = {
    "generated": 3000,
    "epochs": 4,
    "batch": 32,
    "rate": 3e-3,
    "dropout": 0.2,
    "words": 64,
    "hidden": 64,
    "word_values": True,
    "frequent": 0,
    "decode_dev": False,
}
_TRAIN = (
    "import sys; from pathlib import Path; from regmax.experiments import demo; demo.train(Path(sys.argv[1]))"
)


def configuration(mapping: str) -> Config:
    """The demo's run of one mapping."""
    return make("translation", "small", {**_FIELDS, "mapping": mapping})


def run(out: Path, say: Callable[[str], None] = print) -> list[Path]:
    """Train every mapping, print the tables, and return the runs' folders; finished runs are not trained again."""
    folders = [out / f"translation-{mapping}" for mapping in MAPPINGS]
    say(f"Training {', '.join(MAPPINGS)} on generated translations.")
    # A run has one thread: two side by side are faster than one after the other with two threads each.
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for folder, mapping in zip(folders, pool.map(_process, MAPPINGS, folders), strict=True):
            say(f"{mapping}: {folder}")
    for table in tables(find_runs(folders)):
        say("\n" + FORMATS["terminal"](table))
    return folders


def train(folder: Path) -> None:
    """One of the runs, in its own process."""
    from regmax.experiments.run import resume

    resume(folder, {})


def _process(mapping: str, folder: Path) -> str:
    if not (folder / runs.CONFIG).exists():
        runs.create(configuration(mapping), folder)
    if (folder / runs.CONFIG).read_text(encoding="utf-8") != dumps(configuration(mapping)):
        raise ExperimentError(f"{folder} holds another run: remove it, or choose another folder.")
    if not (folder / runs.RESULT).exists():
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", _TRAIN, str(folder)], env=environment, capture_output=True, text=True
        )
        if done.returncode:
            raise ExperimentError(
                f"Training {mapping} failed: {(done.stderr.strip() or 'no message').splitlines()[-1]}"
            )
    return mapping
