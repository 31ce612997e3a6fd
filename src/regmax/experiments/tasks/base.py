"""The interface between the training loop and a task."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regmax.experiments.config import Config


@dataclass(frozen=True)
class Result:
    """The scores of a model on the test set."""

    scores: dict[str, float]
    attention: dict[str, float]
    attention_on: str = ""  # the target whose attention the statistics describe
    signature: str = ""  # how the scores were computed
    examples: list[dict[str, Any]] = field(default_factory=list)  # for the plots: words, scores and weights
    outputs: list[str] = field(default_factory=list)
    references: list[tuple[str, ...]] = field(default_factory=list)  # of each output
    complaint: str = ""  # what looks wrong with the test set


def _unwatched(batches: Sequence[list[int]], text: str) -> Iterable[list[int]]:
    return batches


class Task(ABC):
    """Data and a model. Batches are lists of indices into the training set until they become tensors."""

    config: Config
    model: nn.Module  # called on a batch, it returns the sum of the losses
    # `watch(batches, text)` shows the progress of an evaluation, over whose batches it iterates.
    watch: Callable[[Sequence[list[int]], str], Iterable[list[int]]] = staticmethod(_unwatched)

    @classmethod
    @abstractmethod
    def restore(cls, config: Any, folder: Path, device: torch.device) -> "Task":
        """The task with a run's vocabulary, without training data."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the vocabulary."""

    @abstractmethod
    def fingerprint(self) -> str:
        """A short text that changes with the training data."""

    @abstractmethod
    def epoch(self, epoch: int) -> list[list[int]]:
        """The batches of an epoch: they depend only on the seed and the epoch, and every epoch has the same number."""

    @abstractmethod
    def batch(self, rows: Sequence[int]) -> Any:
        """Some training examples as tensors."""

    @abstractmethod
    def weight(self, rows: Sequence[int]) -> float:
        """The divisor of the summed losses of these examples."""

    @abstractmethod
    def words(self, rows: Sequence[int]) -> int:
        """The number of words in these examples, for the speed."""

    @abstractmethod
    def develop(self) -> dict[str, float]:
        """Scores on the development set; `accuracy` decides which model is the best."""

    @abstractmethod
    def test(self) -> Result:
        """Scores on the test set."""

    def loss(self, model: nn.Module, rows: Sequence[int], whole: Sequence[int]) -> Tensor:
        """The contribution of `rows` to the loss of the batch `whole`."""
        if rows:
            return model(self.batch(rows)) / self.weight(whole)
        # A process without rows must still take part in the reduction of gradients.
        return model(self.batch(whole[:1])) * 0.0
