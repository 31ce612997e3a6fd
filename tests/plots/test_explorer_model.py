"""Scores of transformers models in local folders: their softmax is the model's own attention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regmax
from regmax.plots import model_examples

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

WORDS = ["<pad>", "</s>", "<s>", "[UNK]", "the", "old", "keeper", "has", "seen", "a", "ship", "."]
TEXT = "the old keeper has seen a ship ."
SMALL = {"vocab_size": len(WORDS), "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}


def bert() -> Any:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    return transformers.BertModel(transformers.BertConfig(**SMALL, **sizes, initializer_range=1.0))


def gpt2() -> Any:
    return transformers.GPT2Model(
        transformers.GPT2Config(**SMALL, n_embd=16, n_layer=2, n_head=2, initializer_range=0.5)
    )


def bart() -> Any:
    sides = {
        f"{side}_{name}": size
        for side in ("encoder", "decoder")
        for name, size in (("layers", 2), ("attention_heads", 2), ("ffn_dim", 16))
    }
    config = transformers.BartConfig(**SMALL, **sides, d_model=16, decoder_start_token_id=1, init_std=1.0)
    return transformers.BartForConditionalGeneration(config)


def saved(model: Any, folder: Path) -> Path:
    words = tokenizers.models.WordLevel({word: k for k, word in enumerate(WORDS)}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    special = {"pad_token": "<pad>", "eos_token": "</s>", "bos_token": "<s>", "unk_token": "[UNK]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def _same_models_every_time() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("make", [bert, gpt2])
def test_the_scores_softmax_is_the_models_attention(make: Any, tmp_path: Path) -> None:
    folder = saved(make(), tmp_path)
    (example,) = model_examples(folder, [TEXT]).examples
    assert example.source == tuple(TEXT.split())
    assert [view.name for view in example.views[1:3]] == ["layer 1, head 2", "layer 2, head 1"]
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    ids = torch.tensor([[WORDS.index(word) for word in example.source]])
    heads = torch.cat(model(ids, output_attentions=True).attentions, dim=1)[0].detach().numpy()
    for view, y in zip(example.views, heads, strict=True):
        np.testing.assert_allclose(regmax.softmax(view.scores), y, atol=1e-6)
        masked = np.triu(np.ones(y.shape, bool), 1) if make is gpt2 else np.zeros(y.shape, bool)
        np.testing.assert_array_equal(np.isneginf(view.scores), masked)


def test_an_encoder_decoder_attends_from_what_it_writes(tmp_path: Path) -> None:
    (example,) = model_examples(saved(bart(), tmp_path), [TEXT]).examples
    assert example.source == tuple(TEXT.split())
    assert len(example.views) == 4
    for view in example.views:
        assert view.scores.shape == (len(view.target), len(example.source))
        assert np.isfinite(view.scores).all()


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"is not a model's folder: it has no config\.json"):
        model_examples(tmp_path, [TEXT])
