"""Batches of sequences of similar length, in an order that depends only on the seed and the epoch."""

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from regmax.experiments.data.vocabulary import PAD

# Sequences are sorted by length within a pool of this many batches: little padding, and still a random order.
_POOL = 50


def batches(lengths: Sequence[tuple[int, ...]], size: int, *, seed: int, epoch: int) -> list[list[int]]:
    """The indices of each batch of an epoch.

    No state is kept between epochs, so a run that resumes in the middle of one finds its position by counting.

    Example:
        >>> sorted(sum(batches([(3,), (1,), (2,)], 2, seed=0, epoch=0), []))
        [0, 1, 2]
    """
    draw = random.Random(f"{seed}/{epoch}")
    order = list(range(len(lengths)))
    draw.shuffle(order)
    pools = [order[i : i + _POOL * size] for i in range(0, len(order), _POOL * size)]
    ordered = [i for pool in pools for i in sorted(pool, key=lengths.__getitem__)]
    cut = [ordered[i : i + size] for i in range(0, len(ordered), size)]
    draw.shuffle(cut)
    return cut


def in_order(lengths: Sequence[tuple[int, ...]], size: int) -> list[list[int]]:
    """The indices of each batch for an evaluation: the longest first, so that an out-of-memory error comes at once."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    return [order[i : i + size] for i in range(0, len(order), size)]


def padded(sequences: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """The sequences as rows of one tensor, padded with `PAD`."""
    longest = max(map(len, sequences))
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in sequences], device=device)
