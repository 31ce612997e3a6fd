"""`record_attention`: the weights of every attention layer while a model runs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import regmax
from regmax.sparse_attention.weights import SparseWeights

X = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0))


def encoder(mapping: str = "sparsemax") -> nn.TransformerEncoder:
    torch.manual_seed(1)
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, batch_first=True, dropout=0.0), 2, enable_nested_tensor=False
    )
    regmax.replace_attention(model, mapping)
    return model


def test_replaced_layers_are_recorded_by_name_and_head() -> None:
    model = encoder().eval()
    before = model(X)
    with regmax.record_attention(model) as record:
        after = model(X)
    torch.testing.assert_close(after, before)
    assert list(record) == ["layers.0.self_attn", "layers.1.self_attn"]
    (weights,) = record["layers.0.self_attn"]
    assert isinstance(weights, SparseWeights)
    expected = model.layers[0].self_attn(X, X, X, average_attn_weights=False)[1]
    torch.testing.assert_close(record.dense("layers.0.self_attn"), expected)
    assert len(weights.values) < expected.numel()
    assert model(X).equal(before)
    assert len(record["layers.0.self_attn"]) == 1  # not after the end


def test_what_a_layer_returns_does_not_change() -> None:
    attend = regmax.nn.MultiheadAttention(8, 2, batch_first=True, mapping="fusedmax")
    model = nn.ModuleDict({"one": attend})
    for options in ({}, {"need_weights": False}, {"average_attn_weights": False}):
        before = attend(X, X, X, **options)
        with regmax.record_attention(model) as record:
            after = attend(X, X, X, **options)
        torch.testing.assert_close(after, before)
        assert record.dense("one").shape == (3, 2, 5, 5)


def test_recurrent_attention_is_recorded() -> None:
    model = nn.ModuleDict(
        {"luong": regmax.nn.GlobalAttention(8), "bahdanau": regmax.nn.AdditiveAttention(8, 8)}
    )
    with regmax.record_attention(model) as record:
        y = model["luong"](X[:, 0], X)[1]
        z = model["bahdanau"](X, X)[1]
    torch.testing.assert_close(record.dense("luong"), y)
    torch.testing.assert_close(record.dense("bahdanau"), z)


def test_torchs_own_layers_are_recorded_if_they_return_weights() -> None:
    model = nn.ModuleDict({"attend": nn.MultiheadAttention(8, 2, batch_first=True)})
    with regmax.record_attention(model) as record:
        y = model["attend"](X, X, X, average_attn_weights=False)[1]
        model["attend"](X, X, X, need_weights=False)
    assert len(record["attend"]) == 1
    torch.testing.assert_close(record.dense("attend"), y)


def test_modules_and_calls_can_be_limited() -> None:
    model = encoder()
    with regmax.record_attention(model, modules="layers.1.*", max_calls=2) as record:
        for _ in range(3):
            model(X)
    assert {name: len(calls) for name, calls in record.items()} == {"layers.1.self_attn": 2}
    assert "layers.1.self_attn" in repr(record)
    with regmax.record_attention(model) as outer, regmax.record_attention(model) as inner:
        model(X)
    assert outer.dense("layers.0.self_attn").equal(inner.dense("layers.0.self_attn"))


def test_an_error_ends_the_recording() -> None:
    model = encoder()
    with pytest.raises(RuntimeError), regmax.record_attention(model) as record:
        model(X[..., :3])
    model(X)
    assert len(record) == 0


def test_wrong_arguments_raise() -> None:
    with (
        pytest.raises(ValueError, match=r"`record_attention\(model\)` found no attention layer"),
        regmax.record_attention(nn.Linear(2, 2)),
    ):
        pass
    with (
        pytest.raises(ValueError, match=r"modules=...\)` must name attention layers, .*Got decoder"),
        regmax.record_attention(encoder(), modules="decoder"),
    ):
        pass
    with (
        pytest.raises(ValueError, match=r"max_calls=...\)` must be at least 1. Got 0"),
        regmax.record_attention(encoder(), max_calls=0),
    ):
        pass
    with (
        pytest.raises(KeyError, match="No weights were recorded for 'x', but for nothing"),
        regmax.record_attention(encoder()) as record,
    ):
        record["x"]


def test_layers_of_one_sequence_have_heads() -> None:
    model = encoder()
    with regmax.record_attention(model) as record:
        model(X)
    layers = record.layers(batch=1)
    assert {name: y.shape for name, y in layers.items()} == dict.fromkeys(record, (2, 5, 5))
    assert layers["layers.0.self_attn"].equal(record.dense("layers.0.self_attn")[1])
