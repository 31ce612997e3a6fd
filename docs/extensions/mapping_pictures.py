"""A picture of each mapping for its API page, drawn when the site is built."""

from pathlib import Path
from typing import Any

import numpy as np

from regmax.functional import regularized_argmax
from regmax.mappings import MAPPINGS, NamedMapping
from regmax.plots import Setting, attention_heatmap, demo_examples
from regmax.plots.colours import INK, LINES, OTHER_LINE
from regmax.plots.figures import new_figure, save_figure

FOLDER = Path(__file__).parents[1] / "api" / "generated"


def draw(app: Any) -> None:
    """Write `generated/NAME.png` for every mapping."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for row in MAPPINGS.values():
        save_figure(_figure(row), FOLDER / f"{row.name}.png", dpi=110)


def _figure(row: NamedMapping) -> Any:
    """The weight of one of two scores, and a sentence's weights."""
    figure = new_figure(10.5, 3.6)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.9))
    t = np.linspace(-2.5, 2.5, 501)
    x = np.stack([t, np.zeros_like(t)], axis=1)
    for name in dict.fromkeys(("softmax", row.name)):
        y = regularized_argmax(MAPPINGS[name].made(), x)[:, 0]
        colour, dashes = LINES.get(name, OTHER_LINE)
        left.plot(t, y, color=colour, linestyle=dashes, linewidth=1.8, label=name)
    left.set_title("first weight of the scores (t, 0)", fontsize=10)
    left.set_xlabel("t")
    left.legend(frameon=False, fontsize=9)
    left.spines[["top", "right"]].set_visible(False)
    left.tick_params(labelsize=9, colors=INK)
    example = demo_examples().examples[0]
    (view,) = example.views
    setting = Setting(row.name)
    title, clustered = setting.label, setting.clustered
    weights = setting(view.scores)[:8]
    attention_heatmap(
        weights, example.source, view.target[:8], title=title, clustered=clustered, largest=1.0, ax=right
    )
    return figure


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("builder-inited", draw)
    return {"parallel_read_safe": True}
