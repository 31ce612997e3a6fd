"""Learning curves of training runs: the development score after each epoch."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regmax.mappings import MAPPINGS
from regmax.plots.colours import INK, LINES, OTHER_LINE
from regmax.plots.figures import figure_of, new_figure
from regmax.plots.runs import Run, read_runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The score of the task's table, if it was measured in training; every task has an accuracy.
_SCORES = ("dev BLEU", "dev ROUGE-1 f1", "dev accuracy")
_MARKERS = dict(
    zip(LINES, "osD^vP*X", strict=False)
)  # distinguish mappings in print, together with the colour

# By training aid: scores scaled or not, gamma annealed or not.
_DASHES: dict[tuple[bool, bool], Any] = {
    (True, True): "solid",
    (True, False): (0, (4, 2)),
    (False, True): (0, (4, 2, 1, 2)),
    (False, False): (0, (1, 2)),
}


def learning_curves(
    folders: Sequence[Path | str], *, score: str | None = None, ax: "Axes | None" = None
) -> "Figure":
    """Draw a development score against the epoch, one line per run.

    Lines are dashed if gamma was not annealed, dash-dotted if the scores were not scaled, and dotted if neither
    was done. Runs that are still training are drawn up to their last epoch. Runs that differ only in their seed
    look the same and have one entry in the legend.

    Args:
        folders: the runs' folders, all of one task on the same data.
        score: its name in `history.json`; by default `dev BLEU`, `dev ROUGE-1 f1` or `dev accuracy`, whichever comes
            first among those that all runs have.
        ax: axes to draw into; by default those of a new figure.

    Returns:
        The figure.

    Example:
        >>> import json, tempfile
        >>> history = [{"epoch": 1, "dev BLEU": 21.0}, {"epoch": 2, "dev BLEU": 27.5}]
        >>> content = {"config": {"mapping": "softmax", "gamma": 1.0}, "examples": [], "history": history}
        >>> with tempfile.TemporaryDirectory() as folder:  # the files that `regmax train` writes
        ...     for name, value in content.items():
        ...         _ = Path(folder, f"{name}.json").write_text(json.dumps(value))
        ...     learning_curves([folder]).axes[0].get_ylabel()
        'dev BLEU'
    """
    runs = read_runs([Path(folder) for folder in folders])
    if len({(run.task, run.test) for run in runs}) > 1:
        raise ValueError(
            "`learning_curves(folders)` compares runs of one task on the same data. Got several."
        )
    score = _common_score(runs) if score is None else score
    if ax is None:
        ax = new_figure(6.4, 3.8).subplots()
    drawn: set[str] = set()
    for run in sorted(runs, key=lambda run: list(MAPPINGS).index(run.setting.mapping)):
        _draw(ax, run, score, "_nolegend_" if run.label in drawn else run.label)
        drawn.add(run.label)
    ax.set_xlabel("epoch", color=INK)
    ax.set_ylabel(score, color=INK)
    ax.locator_params(axis="x", integer=True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=9, colors=INK)
    ax.legend(frameon=False, fontsize=9, handlelength=2.6)
    return figure_of(ax)


def _draw(ax: "Axes", run: Run, score: str, label: str) -> None:
    points = [(record["epoch"], record[score]) for record in run.history if score in record]
    if not points:
        raise ValueError(f"{run.folder} has no {score!r} in its history.")
    mapping = run.setting.mapping
    style: dict[str, Any] = {
        "color": LINES.get(mapping, OTHER_LINE)[0],
        "marker": _MARKERS.get(mapping, "x"),
        "markersize": 4.5,
        "linewidth": 1.6,
    }
    ax.plot(*zip(*points, strict=True), linestyle=_DASHES[run.scaled, run.annealed], label=label, **style)


def _common_score(runs: Sequence[Run]) -> str:
    for score in _SCORES:
        if runs and all(run.history and score in run.history[-1] for run in runs):
            return score
    raise ValueError(
        f"`learning_curves(folders)` needs runs with one of {', '.join(_SCORES)} in their history."
    )
