"""The benchmark of `regmax bench`: every mapping against `torch.softmax`, on the same scores, in turns."""

from regmax.bench.bars import Verdict, verdicts
from regmax.bench.cases import Case, full_cases, quick_cases
from regmax.bench.growth import Growth, fits, grow
from regmax.bench.measure import Result, compare

__all__ = [
    "Case",
    "Growth",
    "Result",
    "Verdict",
    "compare",
    "fits",
    "full_cases",
    "grow",
    "quick_cases",
    "verdicts",
]
