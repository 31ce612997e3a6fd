"""The three tasks: data, model and scores, with the interface that the training loop needs."""

from collections.abc import Sequence
from pathlib import Path

import torch

from regmax.experiments.config import Config, EntailmentConfig, Seq2SeqConfig
from regmax.experiments.errors import ExperimentError
from regmax.experiments.tasks.base import Result, Task
from regmax.experiments.tasks.entailment import EntailmentTask
from regmax.experiments.tasks.seq2seq import Seq2SeqTask

__all__ = ["Result", "Task", "build", "restore"]


def build(config: Config, device: torch.device) -> Task:
    """The task with its data and a new model, whose initial parameters depend on the seed."""
    torch.manual_seed(config.seed)
    if isinstance(config, EntailmentConfig):
        return EntailmentTask.build(config, device)
    if isinstance(config, Seq2SeqConfig):
        return Seq2SeqTask.build(config, device)
    raise ExperimentError(f"There is no task for {type(config).__name__}.")


def restore(config: Config, folder: Path, device: torch.device) -> Task:
    """The task with the vocabulary of a run and its test data, but without training data."""
    kinds: Sequence[type[Task]] = (Seq2SeqTask, EntailmentTask)
    kind = kinds[isinstance(config, EntailmentConfig)]
    return kind.restore(config, folder, device)
