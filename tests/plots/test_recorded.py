"""Figures and the explorer take what `record_attention` recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from browser import Page

import regmax
from regmax import plots


def record(mapping: str = "sparsemax", heads: int = 2, batch: int = 1) -> regmax.nn.AttentionRecord:
    torch.manual_seed(0)
    model = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(8, heads, batch_first=True), 2, enable_nested_tensor=False
    )
    regmax.replace_attention(model, mapping)
    with regmax.record_attention(model) as found:
        model(torch.randn(batch, 4, 8))
    return found


def test_heads_are_drawn_from_a_record() -> None:
    figure = plots.attention_heads(record())
    assert len([axes for axes in figure.axes if len(axes.images) == 2]) == 4
    with pytest.raises(ValueError, match=r"draws one example of a batch. Got 3"):
        plots.attention_heads(record(batch=3))
    plots.attention_heads(record(batch=3), example=1)


def test_a_heat_map_needs_one_matrix() -> None:
    found = record()
    words = list("abcd")
    with pytest.raises(
        ValueError, match=r"draws one matrix.*choose with `record.dense\(name\)\[batch, head\]`"
    ):
        plots.attention_heatmap(found, words, words)
    plots.attention_heatmap(found.dense("layers.0.self_attn")[0, 1], words, words)
    one = regmax.nn.AttentionRecord({"a": record(heads=1)["layers.0.self_attn"]})
    plots.attention_heatmap(one, words, words)
    assert one["a"][0].shape == (1, 1, 4, 4)


@pytest.mark.parametrize("mapping", ["softmax", "fusedmax,lam=0.3", "oscarmax"])
def test_the_explorer_shows_the_recorded_weights(mapping: str, tmp_path: Path) -> None:
    found = record(mapping)
    examples = plots.record_examples(found, list("abcd"))
    (example,) = examples.examples
    assert [view.name for view in example.views][:2] == [
        "layers.0.self_attn, head 1",
        "layers.0.self_attn, head 2",
    ]
    y = found.dense("layers.0.self_attn")[0].double().numpy()
    for view, expected in zip(example.views[:2], y, strict=True):
        np.testing.assert_allclose(view.mapping(view.scores), expected, atol=1e-6)
    assert plots.write_explorer(examples, tmp_path / "page.html").is_file()
    with pytest.raises(ValueError, match=r"as many tokens as the weights have keys and queries. Got 3 and 3"):
        plots.record_examples(found, list("abc"))


def made_record(y: np.ndarray) -> dict[str, list[torch.Tensor]]:
    """A record of the given weights (heads, queries, keys)."""
    return {"attend": [torch.tensor(y[None], dtype=torch.float32)]}


def test_the_explorer_keeps_every_zero_of_the_recorded_weights() -> None:
    # float32 weights whose sum is below or above 1 by a rounding error, and a weight smaller than that error.
    x = torch.randn(2, 300, 40, generator=torch.Generator().manual_seed(1))
    y = regmax.entmax(3 * x, alpha=1.25).numpy()
    y[0, :, 7] = np.where(y[0, :, 7] == 0, np.float32(1e-9), y[0, :, 7])
    assert {-1.0, 1.0} <= set(np.sign(y.astype(np.float64).sum(-1) - 1).ravel())
    (example,) = plots.record_examples(
        made_record(y), [f"s{k}" for k in range(40)], [f"t{k}" for k in range(300)]
    ).examples
    for view, expected in zip(example.views, y, strict=True):
        stored = view.scores.astype(np.float32).astype(np.float64)  # as the page has them
        shown = view.mapping(stored)
        np.testing.assert_array_equal(shown == 0, expected == 0)
        np.testing.assert_allclose(shown, expected, atol=1e-6)


def test_only_a_model_whose_heads_are_all_causal_has_deleted_positions() -> None:
    past = np.tril(np.ones((4, 4))) / np.arange(1, 5)[:, None]
    past[2] = [1, 0, 0, 0]
    both = np.stack([past, past[::-1, ::-1]])
    words = list("abcd")
    for heads, deleted in ((both, False), (np.stack([past, past]), True)):
        (example,) = plots.record_examples(made_record(heads), words).examples
        assert [bool(np.isinf(view.scores).any()) for view in example.views] == [deleted, deleted]


def test_a_query_without_keys_is_shown_as_masked() -> None:
    y = np.array([[[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]])
    (example,) = plots.record_examples(made_record(y), list("abc"), list("xy")).examples
    (view,) = example.views
    np.testing.assert_allclose(view.mapping(view.scores), [[0.5, 0.5, 0.0], [np.nan] * 3], atol=1e-6)


def test_a_zero_of_recorded_weights_has_no_sign(tab: Callable[..., Page], tmp_path: Path) -> None:
    y = np.array([[[0.75, 0.25, 0.0], [0.0, 0.5, 0.5]]])
    path = plots.write_explorer(
        plots.record_examples(made_record(y), list("abc"), list("xy")), tmp_path / "page.html"
    )
    page = tab().open(path, "#left=sparsemax")
    page.evaluate("document.getElementById('all-words')?.click()")
    scores = page.evaluate(
        "[...document.querySelectorAll('#numbers td.score')].map((cell) => cell.textContent)"
    )
    assert scores == ["0.75", "0.25", "0.00"]


SHOWN = """[...document.querySelectorAll('#left g[role=row]')].map((row) =>
  [...row.querySelectorAll('.cell')].map((cell) => Number(cell.dataset.weight)))"""


def test_recorded_weights_have_a_name_and_no_strengths(tab: Callable[..., Page], tmp_path: Path) -> None:
    dense, sparse = np.full((2, 3), 1 / 3), np.array([[0.75, 0.25, 0.0], [0.0, 0.5, 0.5]])
    examples = plots.record_examples(made_record(np.stack([dense, sparse])), list("abc"), list("xy"))
    page = tab().open(plots.write_explorer(examples, tmp_path / "page.html"))
    mapping = "document.getElementById('left-mapping')"
    assert page.evaluate(f"[...{mapping}.options].map((one) => one.value)")[:2] == ["recorded", "softmax"]
    for view, y in enumerate((dense, sparse)):
        page.evaluate(
            f"((select) => {{ select.value = {view}; select.dispatchEvent(new Event('change')); }})"
            "(document.getElementById('left-scores'))"
        )
        page.settle()
        assert page.evaluate(f"{mapping}.value") == "recorded"
        np.testing.assert_allclose(page.evaluate(SHOWN), y, atol=1e-6)
    assert page.evaluate("document.querySelectorAll('#left .slider:not([hidden])').length") == 0
    heads = "[...document.querySelectorAll('#numbers thead th')].map((one) => one.textContent)"
    assert page.evaluate(heads) == ["attends to", "recorded"]
