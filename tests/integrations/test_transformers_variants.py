"""What models of today add to attention: soft caps, sinks, sliding windows, packed sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from hugging import WORDS

import regmax
from regmax.integrations import transformers as sparse

LENGTH = 11
SIZES = {
    "vocab_size": WORDS,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 24,
    "pad_token_id": 0,
    "initializer_range": 0.5,
}


def gemma2() -> Any:
    return transformers.Gemma2Config(**SIZES, attn_logit_softcapping=3.0, sliding_window=4)


def gpt_oss() -> Any:
    return transformers.GptOssConfig(**SIZES, sliding_window=4, num_local_experts=2, num_experts_per_tok=1)


def mistral() -> Any:
    return transformers.MistralConfig(**SIZES, sliding_window=4)


def build(config: Callable[[], Any], implementation: str) -> Any:
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config(), attn_implementation=implementation).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("sinks"):
            torch.nn.init.normal_(parameter)
    return model


@pytest.fixture(autouse=True)
def names() -> None:
    sparse.register()


@pytest.fixture
def words() -> torch.Tensor:
    return torch.randint(3, WORDS, (2, LENGTH), generator=torch.Generator().manual_seed(1))


EVERY_MODEL = pytest.mark.parametrize("config", [gemma2, gpt_oss, mistral])


@EVERY_MODEL
def test_softmax_equals_eager(config: Callable[[], Any], words: torch.Tensor) -> None:
    mask = torch.ones_like(words)
    mask[1, 8:] = 0
    ours, eager = (build(config, name) for name in ("softmax", "eager"))
    found, wanted = (model(words, attention_mask=mask).logits for model in (ours, eager))
    torch.testing.assert_close(found[mask.bool()], wanted[mask.bool()], rtol=1e-4, atol=1e-5)
    found[0].square().sum().backward()
    wanted[0].square().sum().backward()
    for (name, p), (_, other) in zip(ours.named_parameters(), eager.named_parameters(), strict=True):
        if other.grad is not None:
            size = float(other.grad.abs().max())
            torch.testing.assert_close(p.grad, other.grad, rtol=1e-3, atol=1e-5 * max(size, 1), msg=name)


@EVERY_MODEL
@pytest.mark.parametrize("mapping", ["sparsemax", "fusedmax", "entmax"])
def test_sparse_mappings_train(config: Callable[[], Any], mapping: str, words: torch.Tensor) -> None:
    model = build(config, mapping)
    model(words, labels=words).loss.backward()
    attention = [p for name, p in model.named_parameters() if "self_attn" in name]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in attention)
    sinks = [p for name, p in model.named_parameters() if name.endswith("sinks")]
    assert all(p.grad.abs().sum() > 0 for p in sinks)
    assert len(sinks) == (2 if config is gpt_oss else 0)


@EVERY_MODEL
def test_generation_with_cache_equals_generation_without(
    config: Callable[[], Any], words: torch.Tensor
) -> None:
    model = build(config, "fusedmax")
    options = {"max_new_tokens": 5, "do_sample": False}
    cached = model.generate(words, **options)
    assert torch.equal(cached, model.generate(words, **options, use_cache=False))


def test_packed_sequences_do_not_see_each_other(words: torch.Tensor) -> None:
    model = build(mistral, "fusedmax")
    packed = words.reshape(1, -1)[:, :18]
    parts = packed[:, :7], packed[:, 7:]
    positions = torch.cat([torch.arange(7), torch.arange(11)])[None]
    found = model(packed, position_ids=positions, use_cache=False).logits
    wanted = torch.cat([model(part, use_cache=False).logits for part in parts], 1)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@EVERY_MODEL
def test_they_are_made_sparse_too(config: Callable[[], Any], words: torch.Tensor) -> None:
    model = build(config, "eager")
    options = {"mapping": "sparsemax", "tolerance": 0.3, "strengths": {"gamma": (0.5, 1.0, 2.0)}}
    report = sparse.sparsify_attention(model, [{"input_ids": words}], **options)
    assert report.words < report.words_before
    with torch.no_grad(), regmax.record_attention(model) as record:
        model(words)
    assert all((record.dense(name).sum(-1) < 1 + 1e-5).all() for name in record)
    # The second time the original is softmax with the sinks and caps of the model.
    again = sparse.sparsify_attention(model, [{"input_ids": words}], **options)
    assert again.heads == report.heads
    assert again.output_error == pytest.approx(report.output_error, rel=1e-3)
