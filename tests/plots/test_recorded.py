"""Figures and the explorer take what `record_attention` recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

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
