"""The benchmark of `regmax bench`: every mapping against `torch.softmax`, on the same scores, in turns."""

from regmax.bench.cases import Case, full_cases, quick_cases
from regmax.bench.growth import Growth, fits, grow
from regmax.bench.measure import Result, compare
from regmax.bench.report import Bars, Report, Verdict

__all__ = [
    "Bars",
    "Case",
    "Growth",
    "Report",
    "Result",
    "Verdict",
    "compare",
    "fits",
    "full_cases",
    "grow",
    "quick_cases",
]
