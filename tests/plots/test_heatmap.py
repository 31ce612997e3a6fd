"""The figures, checked through their artists: grey cells, borders, bullets."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

import regmax
from regmax.plots import Panel, Setting, attention_heads, attention_heatmap, attention_panels, colours
from regmax.plots.explorer import palette

WEIGHTS = np.array(
    [
        [0.4, 0.4, 0.2, 0.0, 0.0, 0.0],
        [0.0, 0.25, 0.25, 0.0, 0.25, 0.25],
        [0.1, 0.2, 0.3, 0.2, 0.1, 0.1],
        [np.nan, 1.0, 0.0, np.nan, np.nan, 0.0],
    ]
)
SOURCE, TARGET = list("abcdef"), list("wxyz")


def rectangles(ax: Axes, gid: str) -> list[tuple[int, int, int]]:
    """(row, start, stop) of the rectangles of a collection."""
    (collection,) = [one for one in ax.collections if one.get_gid() == gid]
    boxes = [path.get_extents() for path in collection.get_paths()]
    return [(int(box.y0), round(box.x0), round(box.x1)) for box in boxes]


def bullets(ax: Axes) -> dict[str, tuple[list[float], tuple[Any, str]]]:
    return {
        line.get_gid(): (
            (line.get_xdata() - 0.5).tolist(),
            (line.get_marker(), str(line.get_markerfacecolor())),
        )
        for line in ax.lines
    }


@pytest.fixture
def ax() -> Axes:
    return attention_heatmap(WEIGHTS, SOURCE, TARGET, clustered=True).axes[0]


def test_grey_is_exactly_where_weights_are_zero(ax: Axes) -> None:
    grey = np.zeros(WEIGHTS.shape, bool)
    for row, start, stop in rectangles(ax, "zeros"):
        grey[row, start:stop] = True
    np.testing.assert_array_equal(grey, WEIGHTS == 0)
    (zeros,) = [one for one in ax.collections if one.get_gid() == "zeros"]
    assert {tuple(colour) for colour in zeros.get_facecolor()} == {to_rgba(colours.ZERO)}


def test_no_border_is_inside_a_run_of_equal_weights_and_one_is_around_it(ax: Axes) -> None:
    drawn = sorted(rectangles(ax, "zeros") + rectangles(ax, "weights"))
    expected = []
    for row, y in enumerate(WEIGHTS):
        start = 0
        for stop in range(1, len(y) + 1):
            if stop == len(y) or not (y[stop] == y[start] or (np.isnan(y[stop]) and np.isnan(y[start]))):
                if not np.isnan(y[start]):
                    expected.append((row, start, stop))
                start = stop
    assert drawn == expected


def test_a_weight_that_is_almost_equal_has_a_border() -> None:
    y = np.array([[1 / 3, np.nextafter(1 / 3, 1), 1 / 3]])
    ax = attention_heatmap(y, list("abc"), ["x"]).axes[0]
    assert rectangles(ax, "weights") == [(0, 0, 1), (0, 1, 2), (0, 2, 3)]


def test_the_smallest_weight_is_not_grey() -> None:
    ax = attention_heatmap(np.array([[1.0, 5e-324, 0.0]]), list("abc"), ["x"]).axes[0]
    assert rectangles(ax, "zeros") == [(0, 2, 3)]
    (weights,) = [one for one in ax.collections if one.get_gid() == "weights"]
    weights.update_scalarmappable()
    assert tuple(weights.get_facecolor()[1]) == pytest.approx(
        to_rgba(palette()["light"]["ramp"][0]), abs=0.01
    )


def test_colours_follow_the_weights(ax: Axes) -> None:
    (weights,) = [one for one in ax.collections if one.get_gid() == "weights"]
    shown = [WEIGHTS[row, start] for row, start, _ in rectangles(ax, "weights")]
    np.testing.assert_array_equal(weights.get_array(), shown)
    assert weights.get_clim() == (0, 1)


def test_members_of_a_cluster_carry_the_same_bullet_and_clusters_differ(ax: Axes) -> None:
    found = bullets(ax)
    assert {gid: places for gid, (places, _) in found.items()} == {
        "cluster 0.0": [0, 1], "cluster 1.0": [1, 2, 4, 5], "cluster 2.0": [1, 3], "cluster 2.1": [0, 4, 5],
    }  # fmt: skip
    assert found["cluster 2.0"][1] != found["cluster 2.1"][1]


def test_without_clusters_there_are_no_bullets() -> None:
    assert bullets(attention_heatmap(WEIGHTS, SOURCE, TARGET).axes[0]) == {}


def test_eight_clusters_have_eight_bullets() -> None:
    y = np.repeat(np.arange(1, 9) / 72, 2)[None]
    found = bullets(attention_heatmap(y, [str(k) for k in range(16)], ["x"], clustered=True).axes[0])
    markers = {marker + ("hollow" if face == "none" else "") for _, (marker, face) in found.values()}
    assert len(markers) == 8


def test_lightness_falls_with_the_weight_and_zero_is_lightest() -> None:
    for name, sign in (("light", -1), ("dark", 1)):
        colours_in_order = [palette()[name]["zero"], *palette()[name]["ramp"]]
        luminance = [np.dot(to_rgba(colour)[:3], (0.2126, 0.7152, 0.0722)) for colour in colours_in_order]
        assert all(np.diff(luminance) * sign > 0.02)


def test_axes_given_are_drawn_into_and_nothing_global_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert attention_heatmap(WEIGHTS, SOURCE, TARGET, ax=right) is figure
    assert not left.collections
    assert len(right.collections) == 2


def test_the_colour_bar_of_one_row_has_its_whole_name() -> None:
    words = ["a", "band", "is", "playing", "on", "stage", "at", "a", "concert"]
    figure = attention_heatmap(np.full((1, len(words)), 1 / len(words)), words, ["no one is dancing"]).figure
    figure.draw_without_rendering()
    (bar,) = [ax for ax in figure.axes if ax.get_ylabel() == "attention weight"]
    box = bar.yaxis.label.get_window_extent()
    assert figure.bbox.y0 <= box.y0
    assert box.y1 <= figure.bbox.y1


def test_heat_maps_in_subplots_share_a_scale_and_a_named_colour_bar_and_cut_no_label() -> None:
    figure = Figure(figsize=(9, 4))
    words = ["Leuchtturmwärter", "gesehen", "haben", "vielleicht"]
    rows = np.array([[0.6, 0.4, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]])
    axes = figure.subplots(1, 3)
    for ax, scale in zip(axes, (0.5, 1.0, 0.25), strict=True):
        attention_heatmap(
            scale * rows, words, ["eins", "Donaudampfschiff"], ax=ax, annotate=True, clustered=True
        )
    limits = {one.get_clim() for ax in axes for one in ax.collections if one.get_gid() == "weights"}
    assert limits == {(0, 0.6)}
    (bar,) = [ax for ax in figure.axes if ax not in axes.tolist()]
    assert bar.get_ylabel() == "attention weight"
    figure.draw_without_rendering()
    whole = figure.bbox
    for ax in axes:
        for label in (*ax.get_xticklabels(), *ax.get_yticklabels()):
            box = label.get_window_extent()
            assert whole.x0 <= box.x0
            assert box.x1 <= whole.x1
            assert box.y1 <= whole.y1
    # The numbers on cells stay readable although the scale has changed since the first map.
    (number,) = [text for text in axes[0].texts if text.get_text() == ".30"]
    assert number.get_color() == colours.text_colour(0.5)


def test_panels_share_one_scale_and_repeat_no_words() -> None:
    x = np.random.default_rng(0).normal(size=(3, 5))
    settings = [Setting("softmax"), Setting("fusedmax"), Setting("oscarmax")]
    panels = [Panel(s(x), list("xyz"), s.label, s.clustered) for s in settings]
    figure = attention_panels(panels, list("abcde"))
    drawn = figure.axes[:3]
    limits = {one.get_clim() for ax in drawn for one in ax.collections if one.get_gid() == "weights"}
    assert limits == {(0, max(float(panel.weights.max()) for panel in panels))}
    assert [ax.get_title() for ax in drawn] == [s.label for s in settings]
    assert [ax.yaxis.get_tick_params()["labelleft"] for ax in drawn] == [True, False, False]


def test_a_right_to_left_source_runs_from_right_to_left() -> None:
    words = ["שלום", "עולם"]
    ax = attention_heatmap([[0.5, 0.5]], words, ["x"]).axes[0]
    assert ax.xaxis_inverted()
    assert not attention_heatmap([[0.5, 0.5]], words, ["x"], right_to_left=False).axes[0].xaxis_inverted()


def test_a_long_source_is_labelled_where_the_weight_is() -> None:
    y = np.zeros((1, 900))
    y[0, 417] = 1
    ax = attention_heatmap(y, [f"w{k}" for k in range(900)], ["x"]).axes[0]
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert "w417" in labels
    assert len(labels) < 450


def test_tensors_and_every_format_are_taken(tmp_path: Path) -> None:
    y = regmax.fusedmax(torch.randn(2, 4, dtype=torch.float32, requires_grad=True))
    figure = attention_heatmap(y, list("abcd"), list("xy"), annotate=True)
    for kind, start in (("pdf", b"%PDF"), ("svg", b"<?xml"), ("png", b"\x89PNG")):
        figure.savefig(tmp_path / f"figure.{kind}")
        assert (tmp_path / f"figure.{kind}").read_bytes().startswith(start)


@pytest.mark.parametrize(("shape", "message"), [((2, 3), r"\(1, 2\)\. Got \(2, 3\)"), ((1,), r"Got \(1,\)")])
def test_weights_of_another_shape_are_refused(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        attention_heatmap(np.ones(shape), ["a", "b"], ["x"])


def test_heads_show_zeros_masks_and_their_share() -> None:
    y = np.stack([WEIGHTS, WEIGHTS])
    figure = attention_heads([y[None], torch.tensor(y)], layers=[1], heads=[0])
    grey, weights = figure.axes[0].images
    np.testing.assert_array_equal(~grey.get_array().mask, WEIGHTS == 0)
    np.testing.assert_array_equal(weights.get_array().mask, (WEIGHTS == 0) | np.isnan(WEIGHTS))
    assert figure.axes[0].get_title() == "33% zero"
    with pytest.raises(
        ValueError, match=r"`attentions\[0\]` must be \(heads, target, source\). Got shape \(4, 6\)"
    ):
        attention_heads([WEIGHTS])


def test_heads_of_a_batch_are_those_of_one_example() -> None:
    y = np.stack(
        [np.stack([WEIGHTS, 0 * WEIGHTS]), np.stack([0 * WEIGHTS, WEIGHTS])]
    )  # (batch, heads, target, source)
    with pytest.raises(
        ValueError, match=r"draws one example of a batch\. Got 2: choose one, `example=0` say"
    ):
        attention_heads([y])
    with pytest.raises(
        ValueError, match=r"`attention_heads\(\.\.\., example=\.\.\.\)` must be in \[0, 2\)\. Got 2"
    ):
        attention_heads([y], example=2)
    titles = [[axes.get_title() for axes in attention_heads([y], example=k).axes[:2]] for k in (0, 1)]
    assert titles == [["33% zero", "100% zero"], ["100% zero", "33% zero"]]


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install '\.\[plots\]'"):
        attention_heatmap(WEIGHTS, SOURCE, TARGET)
