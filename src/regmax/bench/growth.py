"""How time grows with d, at a constant number of scores, on benign and on adversarial rows."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regmax.bench.cases import MILLION, Tensors
from regmax.bench.contestants import BOTH, LAM, MAPPINGS, REFERENCE, Call, calls
from regmax.bench.measure import race

LENGTHS = tuple(2**k for k in range(6, 17))
# A doubling of d may cost this power of two more than d log d does: what timing noise explains.
SLACK = 0.05


@dataclass(frozen=True)
class Growth:
    """Forward + backward of rows of d scores, one thread."""

    mapping: str
    rows: str
    d: int
    nanoseconds: float  # per score, the median


@dataclass(frozen=True)
class Fit:
    """time per row = c d^(1 + power) log d, by least squares on logarithms."""

    mapping: str
    rows: str
    power: float

    @property
    def is_met(self) -> bool:
        """Whether the time grows no faster than d log d."""
        return self.power <= SLACK


def scores(kind: str, n: int, d: int) -> Tensor:
    """Rows that are cheap (normal) and rows made to be dear.

    All scores of a dear row lie within 1 of the largest, so that none can be told off at a glance; ties meet every
    comparison, a ramp takes the most pooling and the slowest search for the threshold, a saw's teeth of size lam are
    pooled one by one, and falling like 1/i defeats searches that drop everything below the mean.
    """
    generator = torch.Generator().manual_seed(d)
    i = torch.arange(d, dtype=torch.float32)
    if kind == "normal":
        return torch.randn(n, d, generator=generator)
    if kind == "flat":
        return 0.03 * torch.randn(n, d, generator=generator)
    if kind == "ties":
        return torch.randint(3, (n, d), generator=generator) / 4
    row = {"ramp": 0.5 * i / d, "sawtooth": LAM * (i % 8), "harmonic": 1 / (i + 1)}[kind]
    return row.repeat(n, 1)


ROWS = ("normal", "flat", "ties", "ramp", "sawtooth", "harmonic")


def grow(
    kind: str,
    *,
    mappings: Sequence[str] = MAPPINGS,
    lengths: Sequence[int] = LENGTHS,
    total: int = MILLION,
    seconds: float = 0.1,
) -> Iterator[Growth]:
    """Time softmax and every mapping on rows of one kind, all lengths in turns, for about `seconds` each."""
    lanes: dict[tuple[str, int], Call] = {}
    for d in lengths:
        x = scores(kind, total // d, d)
        v = torch.randn(x.shape, generator=torch.Generator().manual_seed(d))
        made = calls(Tensors(x, v, None), BOTH, mappings, peers=False)
        lanes |= {(name, d): made[name] for name in (REFERENCE, *mappings)}
    for (_, (name, d)), times in race(lanes, seconds=seconds).items():
        yield Growth(name, kind, d, float(np.nanmedian(times.taken)) / total)


def fits(measured: Iterable[Growth]) -> list[Fit]:
    """The growth of each mapping on each kind of rows that was timed at three lengths at least.

    Example:
        >>> square = [Growth("sparsemax", "ramp", d, 1.0 * d) for d in (64, 256, 1024)]
        >>> fits(square)[0].is_met
        False
    """
    series: dict[tuple[str, str], list[Growth]] = {}
    for point in measured:
        series.setdefault((point.mapping, point.rows), []).append(point)
    return [Fit(*key, _power(points)) for key, points in series.items() if len(points) >= 3]


def _power(points: Sequence[Growth]) -> float:
    """The slope of log(time per score / log d) against log d: zero for d log d per row."""
    lengths = np.log([point.d for point in points])
    beyond = np.log([point.nanoseconds / math.log(point.d) for point in points])
    return float(np.polyfit(lengths, beyond, 1)[0])
