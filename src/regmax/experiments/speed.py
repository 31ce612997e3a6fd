"""What a mapping costs in training: the same steps with each mapping in turn, in one process.

Epochs of different runs differ by a tenth for reasons of the machine. Here every batch is trained on by every mapping,
one right after the other, and only their ratios count:

    python -m regmax.experiments.speed translation --generated 2000
"""

import sys
import time
from collections.abc import Mapping, Sequence
from statistics import median

import torch

from regmax.experiments import tasks
from regmax.experiments.config import TASKS, Config
from regmax.experiments.overrides import parse
from regmax.experiments.tasks import Task
from regmax.names import MAPPINGS

_WARM_UP = 3  # steps that are not counted


def ratios(configs: Mapping[str, Config], steps: int = 40) -> dict[str, float]:
    """Words per second of each configuration, divided by softmax's: the median over the steps.

    Args:
        configs: one for each mapping, softmax among them, equal in everything but the attention.
        steps: how many batches each one is trained on.
    """
    runners = {name: _Runner(config) for name, config in configs.items()}
    batches = next(iter(runners.values())).task.epoch(0)
    times: dict[str, list[float]] = {name: [] for name in runners}
    names = list(runners)
    for i in range(_WARM_UP + steps):
        # Another order at each step: whoever comes after another profits from its warm caches.
        for name in names[i % len(names) :] + names[: i % len(names)]:
            times[name].append(runners[name].step(batches[i % len(batches)]))
    pairs = {
        name: zip(times["softmax"][_WARM_UP:], found[_WARM_UP:], strict=True) for name, found in times.items()
    }
    return {name: median(softmax / own for softmax, own in both) for name, both in pairs.items()}


class _Runner:
    """A model in training at its final gamma."""

    def __init__(self, config: Config) -> None:
        self.task: Task = tasks.build(config, torch.device("cpu"))
        learned = [parameter for parameter in self.task.model.parameters() if parameter.requires_grad]
        self._optimizer = torch.optim.Adam(learned, fused=True)  # as the training loop steps

    def step(self, rows: list[int]) -> float:
        """Train on a batch; the seconds it took."""
        began = time.perf_counter()
        self._optimizer.zero_grad(set_to_none=True)
        self.task.loss(self.task.model, rows, rows).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return time.perf_counter() - began


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
