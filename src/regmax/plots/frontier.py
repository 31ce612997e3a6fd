"""The frontier of finished runs: a test score against a property of attention, such as the length of segments."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from regmax.files import read_json
from regmax.mappings import MAPPINGS
from regmax.plots.colours import INK, LINES, OTHER_LINE
from regmax.plots.figures import figure_of, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SCORES = ("BLEU", "ROUGE-1 f1", "accuracy")
Point = tuple[str, str, float, float]  # the mapping, the label, the property of attention, the score


def frontier(
    folders: Sequence[Path | str], *, score: str | None = None, ax: "Axes | None" = None
) -> "Figure":
    """Draw a test score against the mean length of a segment, one point per configuration.

    Seeds of a configuration are averaged. Points of one mapping are joined in the order of their lam.

    Args:
        folders: folders with a `result.json`, all of one task on the same data.
        score: its name in `result.json`; by default BLEU, `ROUGE-1 f1` or `accuracy`.
        ax: axes to draw into; by default those of a new figure.

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
    results = [read_json(Path(folder) / "result.json") for folder in folders]
    if len({(result["task"], tuple(result["data"])) for result in results}) != 1:
        raise ValueError(
            "`frontier(folders)` compares runs of one task on the same data. Got none or several."
        )
    if score is None:
        score = next(name for name in _SCORES if name in results[0]["scores"])
    if ax is None:
        ax = new_figure(6.4, 3.8).subplots()
    points = _points(results, score)
    for mapping in dict.fromkeys(point[0] for point in points):
        _draw(ax, mapping, [point for point in points if point[0] == mapping])
    ax.set_xlabel("words per segment", color=INK)
    ax.set_ylabel(score, color=INK)
    ax.margins(x=0.12, y=0.12)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=9, colors=INK)
    ax.legend(frameon=False, fontsize=9)
    return figure_of(ax)


def _points(results: Sequence[dict[str, Any]], score: str) -> list[Point]:
    """One point per mapping and strength, in the order of the mappings and of lam."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for result in results:
        config = result["config"]
        grown = bool(config.get("grow_end"))
        key = (list(MAPPINGS).index(config["mapping"]), config.get("lam") or 0.0, grown, config["mapping"])
        groups.setdefault(key, []).append(result)
    return [
        (
            mapping,
            f"{lam:g}{' (grown)' if grown else ''}" if lam else "",
            fmean(result["attention"]["segment length"] for result in found),
            fmean(result["scores"][score] for result in found),
        )
        for (_, lam, grown, mapping), found in sorted(groups.items())
    ]


def _draw(ax: "Axes", mapping: str, points: Sequence[Point]) -> None:
    colour = LINES.get(mapping, OTHER_LINE)[0]
    label = f"{mapping}, by λ" if any(text for _, text, _, _ in points) else mapping
    ax.plot(
        [point[2] for point in points],
        [point[3] for point in points],
        color=colour,
        marker="o",
        markersize=5,
        linewidth=1.2,
        label=label,
    )
    for _, text, length, value in points:
        if text:
            ax.annotate(text, (length, value), (5, 4), textcoords="offset points", fontsize=8, color=colour)
