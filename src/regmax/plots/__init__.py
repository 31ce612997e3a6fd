"""Pictures of attention: the paper's figures, and an interactive page.

Figures need matplotlib (the extra `plots`), the page needs nothing.
"""

from regmax.plots.compared import compare_examples
from regmax.plots.curves import mapping_curves
from regmax.plots.examples import (
    Example,
    Examples,
    FormatError,
    View,
    demo_examples,
    parse_examples,
    read_examples,
)
from regmax.plots.explorer import explorer_page, write_explorer
from regmax.plots.frontier import frontier
from regmax.plots.heads import attention_heads
from regmax.plots.heatmap import Panel, attention_heatmap, attention_panels
from regmax.plots.learning import learning_curves
from regmax.plots.model import model_examples
from regmax.plots.notebook import Explorer, explore
from regmax.plots.recorded import record_examples
from regmax.plots.report import write_report
from regmax.plots.runs import run_examples
from regmax.plots.settings import Setting
from regmax.plots.surfaces import mapping_surfaces

__all__ = [
    "Example",
    "Examples",
    "Explorer",
    "FormatError",
    "Panel",
    "Setting",
    "View",
    "attention_heads",
    "attention_heatmap",
    "attention_panels",
    "compare_examples",
    "demo_examples",
    "explore",
    "explorer_page",
    "frontier",
    "learning_curves",
    "mapping_curves",
    "mapping_surfaces",
    "model_examples",
    "parse_examples",
    "read_examples",
    "record_examples",
    "run_examples",
    "write_explorer",
    "write_report",
]
