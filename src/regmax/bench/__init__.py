"""The benchmark of `regmax bench`: every mapping against `torch.softmax`, on the same scores, in turns."""

from regmax.bench.attention_uses import attention_uses
from regmax.bench.cases import Case, full_cases, quick_cases
from regmax.bench.cliffs import Cell, attention_cells, row_cells
from regmax.bench.growth import Growth, fits, grow
from regmax.bench.measure import Result, compare
from regmax.bench.report import Bars, Report, Verdict
from regmax.bench.uses import Use, UseResult, row_uses
from regmax.bench.uses import measure as measure_use

__all__ = [
    "Bars",
    "Case",
    "Cell",
    "Growth",
    "Report",
    "Result",
    "Use",
    "UseResult",
    "Verdict",
    "attention_cells",
    "attention_uses",
    "compare",
    "fits",
    "full_cases",
    "grow",
    "measure_use",
    "quick_cases",
    "row_cells",
    "row_uses",
]
