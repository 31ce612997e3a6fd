"""Several processes that train one model: `torchrun --nproc-per-node N -m regmax train ...`.

Every process knows the whole batch and computes a part of its rows. Losses are sums, divided by the weight of the whole
batch, and gradients are summed over the processes: the step equals that of a single process.
"""

import gc
import importlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
from torch import Tensor
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from regmax.experiments.errors import ExperimentError

T = TypeVar("T")
# The other processes wait while the first one evaluates.
_PATIENCE = timedelta(hours=6)


@dataclass(frozen=True)
class World:
    """This process in the group."""

    rank: int
    size: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    def share(self, rows: Sequence[int]) -> list[int]:
        """This process's rows of a batch; none if the batch has fewer rows than there are processes."""
        return list(rows[self.rank :: self.size])

    def wrap(self, model: torch.nn.Module) -> torch.nn.Module:
        """The model with synchronised gradients."""
        if self.size == 1:
            return model
        # A process may have no rare words in its rows: the second output level is then unused.
        return DistributedDataParallel(model, find_unused_parameters=True)

    def total(self, value: Tensor) -> float:
        """The sum of a number over all processes."""
        value = value.detach().clone()
        if self.size > 1:
            dist.all_reduce(value)
        return float(value)

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """The equally shaped tensors of all processes, by rank."""
        if self.size == 1:
            return [tensor]
        tensors = [torch.empty_like(tensor, device=self.device) for _ in range(self.size)]
        dist.all_gather(tensors, tensor.to(self.device))
        return [t.cpu() for t in tensors]

    def from_first(self, value: T | None) -> T:
        """Broadcast the value of the first process."""
        box = [value]
        if self.size > 1:
            dist.broadcast_object_list(box, 0)
        return box[0]  # type: ignore[return-value]


def _usable(name: str) -> torch.device:
    """The device of that name, on which a number has been put and read."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # torch raises each of them
        why = str(error).splitlines()[0].rstrip(".")
        raise ExperimentError(
            f"`device` must be one that torch can use here. Got {name!r}: {why}."
        ) from error
    return device


@contextmanager
def join(device: str = "auto") -> Iterator[World]:
    """Join the process group that torchrun started, or run as a single process."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    cuda = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    here = _usable(f"cuda:{local}" if cuda else "cpu" if device == "auto" else device)
    if size == 1:
        yield World(0, 1, here)
        return
    # Its functions take the group as a default argument: if DistributedDataParallel imports them later, they keep it
    # alive.
    importlib.import_module("torch.distributed.nn.functional")
    dist.init_process_group("nccl" if cuda else "gloo", timeout=_PATIENCE)
    try:
        yield World(dist.get_rank(), size, here)
    finally:
        dist.destroy_process_group()
        # Wrapped models refer to the group, and to themselves. A group's threads end with it; a thread that outlives
        # the interpreter and frees a tensor aborts the process.
        gc.collect()
