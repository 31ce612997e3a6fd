"""All five mappings on the generated translation task: two runs at a time, then the table."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from regmax.experiments.config import Config, dumps, make
from regmax.experiments.errors import ExperimentError
from regmax.experiments.speed import ratios
from regmax.experiments.tables import FORMATS, find_runs, tables
from regmax.experiments.training import runs
from regmax.experiments.training.checkpoints import write_atomically
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
# After a minute of training scores are already far apart: at gamma = 1 every mapping would look at one word. A
# larger gamma, and lam with it, leaves room for phrases.
_SPARSE = {"gamma": 3.0, "anneal_from": 6.0}
_LAM = {"fusedmax": 0.3, "oscarmax": 0.1}
_STEPS = 30  # for the speed
SPEED = "speed.json"
_TRAIN = (
    "import sys; from pathlib import Path; from regmax.experiments import demo; demo.train(Path(sys.argv[1]))"
)


def configuration(mapping: str) -> Config:
    """The demo's run of one mapping."""
    fields: dict[str, Any] = {**_FIELDS, "mapping": mapping}
    if mapping != "softmax":
        fields |= _SPARSE
    if mapping in _LAM:
        fields["lam"] = _LAM[mapping]
    return make("translation", "small", fields)


def run(out: Path, say: Callable[[str], None] = print) -> list[Path]:
    """Train every mapping, print the tables, and return the runs' folders; finished runs are not trained again."""
    folders = [out / f"translation-{mapping}" for mapping in MAPPINGS]
    say(f"Training {', '.join(MAPPINGS)} on generated translations.")
    # A run has one thread: two side by side are faster than one after the other with two threads each.
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for folder, mapping in zip(folders, pool.map(_process, MAPPINGS, folders), strict=True):
            say(f"{mapping}: {folder}")
    for table in tables(find_runs(folders), ["scores", "attention"]):
        say("\n" + FORMATS["terminal"](table))
    say("Training speed, as a ratio to softmax, step by step in one process:")
    measured = ratios({mapping: configuration(mapping) for mapping in MAPPINGS}, _STEPS)
    say("  ".join(f"{mapping} {ratio:.2f}" for mapping, ratio in measured.items()))
    write_atomically(out / SPEED, (json.dumps(measured, indent=1) + "\n").encode())
    say(f"The runs are in {out}.")
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
