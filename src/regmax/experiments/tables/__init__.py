"""From run folders to the paper's tables: one row for each mapping, mean and deviation over seeds, the best marked."""

from regmax.experiments.tables.collect import Cell, Table, find_runs, tables
from regmax.experiments.tables.formats import FORMATS

__all__ = ["FORMATS", "Cell", "Table", "find_runs", "tables"]
