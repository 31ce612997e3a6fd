"""The frontier of finished runs: a test score against a property of attention, such as the length of segments."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

from regmax.files import read_json
from regmax.mappings import MAPPINGS
from regmax.plots.colours import INK, LINES, OTHER_LINE
from regmax.plots.figures import figure_of, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SCORES = ("BLEU", "ROUGE-1 f1", "accuracy")
_PANEL = (4.3, 3.6)  # inches, if there are several
Results = list[dict[str, Any]]


class _Point(NamedTuple):
    """A mapping and strength: means over its seeds, and the deviation of the score, 0 for one seed."""

    mapping: str
    label: str
    length: float
    score: float
    deviation: float


def frontier(
    folders: Sequence[Path | str], *, score: str | None = None, ax: "Axes | None" = None
) -> "Figure":
    """Draw a test score against the mean length of a segment, one point per configuration.

    Seeds of a configuration are averaged; a bar is their standard deviation. Points of one mapping are joined in the
    order of their lam. Each task and test set has its own panel.

    Args:
        folders: folders with a `result.json`.
        score: its name in `result.json`; by default BLEU, `ROUGE-1 f1` or `accuracy`.
        ax: axes to draw into, for runs of one task on the same data; by default those of a new figure.

    Returns:
        The figure.

    Example:
        >>> import json, tempfile
        >>> result = {"task": "translation", "data": ["test"], "config": {"mapping": "softmax"}}
        >>> result |= {"scores": {"BLEU": 35.0}, "attention": {"segment length": 1.0}}
        >>> with tempfile.TemporaryDirectory() as folder:  # the file that `regmax train` writes
        ...     _ = Path(folder, "result.json").write_text(json.dumps(result))
        ...     frontier([folder]).axes[0].get_ylabel()
        'BLEU'
    """
    groups: dict[tuple[str, ...], Results] = {}
    for folder in folders:
        result = read_json(Path(folder) / "result.json")
        groups.setdefault((result["task"], *result["data"]), []).append(result)
    if not groups or (ax is not None and len(groups) > 1):
        raise ValueError(
            "`frontier(folders)` needs runs, and with `ax` runs of one task on the same data. Got none or several."
        )
    if ax is not None:
        _panel(ax, next(iter(groups.values())), score)
        ax.legend(frameon=False, fontsize=9)
        return figure_of(ax)
    if len(groups) == 1:
        return frontier(folders, score=score, ax=new_figure(6.4, 3.8).subplots())
    return _panels(groups, score)


def _panels(groups: dict[tuple[str, ...], Results], score: str | None) -> "Figure":
    """One panel per task and test set, and one legend."""
    figure = new_figure(_PANEL[0] * len(groups), _PANEL[1])
    tasks = [task for task, *_ in groups]
    lines: dict[str, Any] = {}
    for ax, (name, results) in zip(figure.subplots(1, len(groups)), groups.items(), strict=True):
        _panel(ax, results, score)
        title = name[0] if tasks.count(name[0]) == 1 else ", ".join(name)
        ax.set_title(title, fontsize=10, color=INK)
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            lines.setdefault(label, handle)
    figure.legend(
        lines.values(), lines.keys(), loc="outside lower center", ncols=len(lines), frameon=False, fontsize=9
    )
    return figure


def _panel(ax: "Axes", results: Results, score: str | None) -> None:
    if score is None:
        score = next(name for name in _SCORES if name in results[0]["scores"])
    points = _points(results, score)
    for mapping in dict.fromkeys(point.mapping for point in points):
        _draw(ax, mapping, [point for point in points if point.mapping == mapping])
    ax.set_xlabel("words per segment", color=INK)
    ax.set_ylabel(score, color=INK)
    ax.margins(x=0.12, y=0.12)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=9, colors=INK)


def _points(results: Results, score: str) -> list[_Point]:
    """One point per mapping and strength, in the order of the mappings and of lam."""
    groups: dict[tuple[Any, ...], Results] = {}
    for result in results:
        config = result["config"]
        grown = bool(config.get("grow_end"))
        key = (list(MAPPINGS).index(config["mapping"]), config.get("lam") or 0.0, grown, config["mapping"])
        groups.setdefault(key, []).append(result)
    points = []
    for (_, lam, grown, mapping), found in sorted(groups.items()):
        scores = [result["scores"][score] for result in found]
        points.append(
            _Point(
                mapping,
                f"{lam:g}{' (grown)' if grown else ''}" if lam else "",
                fmean(result["attention"]["segment length"] for result in found),
                fmean(scores),
                stdev(scores) if len(scores) > 1 else 0.0,
            )
        )
    return points


def _draw(ax: "Axes", mapping: str, points: Sequence[_Point]) -> None:
    colour = LINES.get(mapping, OTHER_LINE)[0]
    lengths, scores = [point.length for point in points], [point.score for point in points]
    label = f"{mapping}, by λ" if any(point.label for point in points) else mapping
    ax.plot(lengths, scores, color=colour, marker="o", markersize=5, linewidth=1.2, label=label)
    ax.vlines(
        lengths,
        [point.score - point.deviation for point in points],
        [point.score + point.deviation for point in points],
        color=colour,
        linewidth=0.8,
        alpha=0.6,
    )
    for point in points:
        if point.label:
            place = (point.length, point.score)
            ax.annotate(point.label, place, (5, 4), textcoords="offset points", fontsize=8, color=colour)
