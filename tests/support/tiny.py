"""Runs small enough for a test: a few words, a few steps, about one second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regmax.experiments import config
from regmax.experiments.config import Config
from regmax.experiments.training import checkpoints, runs
from regmax.experiments.training.distributed import World
from regmax.experiments.training.loop import Trainer

ALONE = World(0, 1, torch.device("cpu"))
_SIZES: dict[str, Any] = {
    "generated": 40,
    "batch": 16,
    "epochs": 2,
    "words": 8,
    "hidden": 8,
    "tensorboard": False,
}
_SEQ2SEQ: dict[str, Any] = {"decode_dev": False, "beam": 2, "least_count": 1}


def tiny(task: str = "translation", **changes: Any) -> Config:
    """A configuration of a run of six steps."""
    sizes = _SIZES if task == "entailment" else _SIZES | _SEQ2SEQ
    return config.make(task, "small", {"mapping": "fusedmax", "save_every": 2, **sizes, **changes})


def options(made: Config) -> list[str]:
    """The command line that makes `tiny()`."""
    fields = {
        "mapping": "fusedmax",
        "save_every": 2,
        **_SIZES,
        **(_SEQ2SEQ if made.task != "entailment" else {}),
    }
    listed = []
    for name in fields:
        flag, value = name.replace("_", "-"), getattr(made, name)
        listed += (
            [f"--{'' if value else 'no-'}{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
        )
    return listed


def start(made: Config, folder: Path) -> Trainer:
    """A new run before training."""
    runs.create(made, folder)
    return Trainer(made, folder, ALONE)


def tensors(folder: Path, name: str = runs.LAST) -> dict[str, Tensor]:
    """A checkpoint's tensors."""
    return checkpoints.read(folder / name)[0]


def same_bits(a: Path, b: Path) -> bool:
    """Whether two runs have the same checkpoints, to the last bit."""
    for name in (runs.LAST, runs.BEST):
        one, other = tensors(a, name), tensors(b, name)
        if one.keys() != other.keys() or not all(torch.equal(one[key], other[key]) for key in one):
            return False
    return True
