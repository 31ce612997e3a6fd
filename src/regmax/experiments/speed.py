"""The cost of a mapping in training: the same steps with each mapping in turn, in one process.

The times of epochs vary by a tenth between runs because of other load on the machine. Here every mapping trains on
every batch, one directly after the other, and only the ratios count:

    python -m regmax.experiments.speed translation --generated 2000
"""

import itertools
import sys
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from regmax.experiments import tasks
from regmax.experiments.config import TASKS, Config
from regmax.experiments.overrides import parse
from regmax.experiments.tasks import Task
from regmax.mappings import MAPPINGS
from regmax.timing import in_turns

_WARM_UP = 3  # steps that are not counted


def ratios(configs: Mapping[str, Config], steps: int = 40) -> dict[str, float]:
    """Words per second of each configuration relative to softmax: the median over the steps.

    Args:
        configs: one per mapping, including softmax; they differ only in the attention.
        steps: the number of batches for each configuration.
    """
    runners = {name: _Runner(config) for name, config in configs.items()}
    steps_of = {name: runner.step for name, runner in runners.items()}
    times = in_turns(steps_of, rounds=steps, warm_up=_WARM_UP)
    return {name: float(np.median(times["softmax"] / own)) for name, own in times.items()}


class _Runner:
    """A model in training at its final gamma."""

    def __init__(self, config: Config) -> None:
        self.task: Task = tasks.build(config, torch.device("cpu"))
        learned = [parameter for parameter in self.task.model.parameters() if parameter.requires_grad]
        self._optimizer = torch.optim.Adam(learned, fused=True)  # as in the training loop
        self._batches = itertools.cycle(self.task.epoch(0))

    def step(self) -> None:
        """Train on the next batch."""
        rows = next(self._batches)
        self._optimizer.zero_grad(set_to_none=True)
        self.task.loss(self.task.model, rows, rows).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()


def main(arguments: Sequence[str]) -> None:
    """Print the ratios for a task and the options of `regmax train`."""
    if not arguments or arguments[0] not in TASKS:
        raise SystemExit(
            f"usage: python -m regmax.experiments.speed {{{','.join(TASKS)}}} [options of regmax train]"
        )
    task, *options = arguments
    configs = {name: parse(task, [*options, "--mapping", name]) for name in MAPPINGS}
    for name, ratio in ratios(configs).items():
        print(f"{name:<12}{ratio:6.3f}")


if __name__ == "__main__":
    main(sys.argv[1:])
