"""How time grows with d, at a constant number of scores, on benign and on adversarial rows."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from regmax.bench.cases import MILLION, Tensors
from regmax.bench.contestants import BOTH, MAPPINGS, REFERENCE, calls
from regmax.bench.rows import scores
from regmax.timing import Call, race

ROWS = ("normal", "flat", "ties", "ramp", "sawtooth", "harmonic")
LENGTHS = tuple(2**k for k in range(6, 17))
WORST = "worst of them"
# Doubling d may cost up to 2**SLACK times more than d log d predicts, which timing noise explains.
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
    """time per row = c d^(1 + power) log d, by least squares on logarithms.

    The time of one kind of rows may grow faster from the length at which a shortcut stops working. The bound therefore
    applies to the worst rows: the largest time over all kinds at each d.
    """

    mapping: str
    rows: str
    power: float

    @property
    def is_met(self) -> bool | None:
        """Whether the time of the worst rows grows no faster than d log d; None for a single kind of rows."""
        return self.power <= SLACK if self.rows == WORST else None


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


def fits(measured: Sequence[Growth]) -> list[Fit]:
    """The growth of each mapping on each kind of rows, and on the worst of them.

    Example:
        >>> square = [Growth("sparsemax", "ramp", d, 1.0 * d) for d in (64, 256, 1024)]
        >>> [(fit.rows, fit.is_met) for fit in fits(square)]
        [('ramp', None), ('worst of them', False)]
    """
    series: dict[tuple[str, str], dict[int, float]] = {}
    for rows in (None, WORST):
        for point in measured:
            times = series.setdefault((point.mapping, rows or point.rows), {})
            times[point.d] = max(times.get(point.d, 0.0), point.nanoseconds)
    return [Fit(*key, _power(times)) for key, times in series.items() if len(times) > 1]


def _power(times: Mapping[int, float]) -> float:
    """The slope of log(time per score / log d) against log d: zero for d log d per row."""
    beyond = [math.log(nanoseconds / math.log(d)) for d, nanoseconds in times.items()]
    return float(np.polyfit(np.log(list(times)), beyond, 1)[0])
