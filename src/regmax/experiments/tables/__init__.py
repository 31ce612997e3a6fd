"""The paper's tables from run folders: one row per configuration, mean and deviation over seeds, the best marked."""

from regmax.experiments.tables.collect import Cell, Table, find_runs, tables
from regmax.experiments.tables.formats import FORMATS
from regmax.experiments.tables.views import VIEWS

__all__ = ["FORMATS", "VIEWS", "Cell", "Table", "find_runs", "tables"]
