"""Kinds of rows: benign ones, and ones on which an algorithm may lose its shortcuts."""

import torch
from torch import Tensor

from regmax.bench.cases import Case, tensors
from regmax.bench.contestants import LAM

KINDS = ("normal", "attention", "flat", "wide", "ramp", "sawtooth", "ties", "constant", "harmonic")
_SCALES = {"normal": 1.0, "flat": 0.03, "wide": 20.0}


def scores(kind: str, n: int, d: int) -> Tensor:
    """n rows of d scores of one kind.

    normal, flat and wide are 1, 0.03 and 20 times N(0, 1); attention rows are N(0, 1) with one score of about 4. All
    scores of the other rows lie within 1 of the largest, so screening excludes none. Ties and constant rows make
    comparisons equal, a ramp needs the most pooling and the slowest search for the threshold, the teeth of a saw of
    size lam are pooled one by one, and scores that decrease like 1/i defeat searches that drop everything below the
    mean.

    Example:
        >>> scores("ramp", 1, 4)
        tensor([[0.0000, 0.1250, 0.2500, 0.3750]])
    """
    generator = torch.Generator().manual_seed(d)
    if kind in _SCALES:
        return _SCALES[kind] * torch.randn(n, d, generator=generator)
    if kind == "attention":
        return tensors(Case(kind, n, d)).x.reshape(n, d)
    if kind == "ties":
        return torch.randint(3, (n, d), generator=generator) / 4
    i = torch.arange(d, dtype=torch.float32)
    rows = {"ramp": 0.5 * i / d, "sawtooth": LAM * (i % 8), "constant": 0.0 * i, "harmonic": 1 / (i + 1)}
    return rows[kind].repeat(n, 1)
