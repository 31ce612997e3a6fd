"""Attention inside torch's own transformer: replaced in place, and called."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regmax

WIDTH, HEADS, BATCH, QUERIES, KEYS = 16, 4, 3, 9, 11  # long enough for the sparse kernels


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def padding() -> Tensor:
    """True for padding."""
    mask = torch.zeros(BATCH, KEYS, dtype=torch.bool)
    mask[0, 8:], mask[1, 10] = True, True
    return mask


def layer(**options: Any) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(WIDTH, HEADS, 24, dropout=0.0, batch_first=True, **options)


def through_forward(encoder: nn.Module, call: Any) -> int:
    """The number of calls of the attention modules."""
    calls = 0
    forward = regmax.nn.MultiheadAttention.forward

    def counting(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        return forward(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regmax.nn.MultiheadAttention, "forward", counting)
        call()
    return calls


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("mode", ["training", "evaluation", "no gradient", "inference"])
@pytest.mark.parametrize("padded", [False, True])
def test_torchs_encoder_does_not_bypass_it(norm_first: bool, mode: str, padded: bool) -> None:
    encoder = nn.TransformerEncoder(layer(norm_first=norm_first), 2, enable_nested_tensor=not norm_first)
    softmax = copy.deepcopy(encoder)
    assert regmax.replace_attention(encoder, "sparsemax") == 2
    x, mask = torch.randn(BATCH, KEYS, WIDTH), padding() if padded else None
    expected = encoder(x, src_key_padding_mask=mask)  # in training mode torch has no fast path
    encoder.train(mode == "training")
    guard = {"no gradient": torch.no_grad, "inference": torch.inference_mode}.get(mode, torch.enable_grad)
    with guard():
        assert through_forward(encoder, lambda: encoder(x, src_key_padding_mask=mask)) == 2
        torch.testing.assert_close(encoder(x, src_key_padding_mask=mask), expected)
    assert not torch.allclose(softmax(x, src_key_padding_mask=mask), expected, atol=1e-3)


def test_causal_and_decoding_layers() -> None:
    model = nn.Transformer(WIDTH, HEADS, 1, 1, 24, dropout=0.0, batch_first=True)
    softmax = copy.deepcopy(model)
    assert regmax.replace_attention(model, "softmax") == 3
    source, target = torch.randn(BATCH, KEYS, WIDTH), torch.randn(BATCH, QUERIES, WIDTH)
    mask = nn.Transformer.generate_square_subsequent_mask(QUERIES)
    call = {
        "tgt_mask": mask,
        "tgt_is_causal": True,
        "src_key_padding_mask": padding(),
        "memory_key_padding_mask": padding(),
    }
    torch.testing.assert_close(
        model(source, target, **call), softmax(source, target, **call), rtol=1e-4, atol=1e-5
    )
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(
            model(source, target, **call), softmax(source, target, **call), rtol=1e-4, atol=1e-5
        )


def test_replacing_keeps_parameters_modes_and_shared_modules() -> None:
    shared = nn.MultiheadAttention(WIDTH, HEADS, kdim=6, vdim=10, bias=False, dropout=0.1, add_zero_attn=True)
    model = nn.ModuleDict(
        {"a": shared, "b": nn.Sequential(shared), "c": nn.MultiheadAttention(WIDTH, 2, add_bias_kv=True)}
    )
    model["c"].requires_grad_(False)
    model.eval()
    before = dict(model.named_parameters())
    state = model.state_dict()
    assert regmax.replace_attention(model, regmax.FusedLasso(lam=0.2)) == 2
    after = dict(model.named_parameters())
    assert list(after) == list(before)
    assert all(after[name] is before[name] for name in before)
    assert model["a"] is model["b"][0]
    assert not model["a"].training
    assert not any(p.requires_grad for p in model["c"].parameters())
    model.load_state_dict(state, strict=True)
    assert model["a"].mapping.lam == 0.2
    assert regmax.replace_attention(model, "sparsemax") == 2  # ours get the new mapping
    assert all(isinstance(model[key].mapping, regmax.nn.Sparsemax) for key in "ac")


def test_replacing_gives_every_layer_its_own_strengths() -> None:
    encoder = nn.TransformerEncoder(layer(), 2)
    regmax.replace_attention(encoder, regmax.nn.Fusedmax(learnable=True))
    first, second = (part.self_attn.mapping.strengths.raw_lam for part in encoder.layers)
    assert first is not second


def test_replacing_nothing_raises() -> None:
    with pytest.raises(ValueError, match=r"found no `torch\.nn.MultiheadAttention`"):
        regmax.replace_attention(nn.Linear(2, 2))
    with pytest.raises(TypeError, match="swaps modules inside a model"):
        regmax.replace_attention(nn.MultiheadAttention(8, 2))
