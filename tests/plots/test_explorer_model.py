"""Scores of transformers models in local folders: their softmax is the model's own attention."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regmax
from regmax.cli import main
from regmax.plots import Setting, compare_examples, model_examples

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


def test_two_models_are_compared_head_by_head(tmp_path: Path) -> None:
    folders = {name: saved(bert(), tmp_path / name) for name in ("one", "two")}
    found = {name: model_examples(folder, [TEXT]) for name, folder in folders.items()}
    (example,) = compare_examples(found).examples
    assert [view.model for view in example.views] == ["one"] * 4 + ["two"] * 4
    assert [view.layer for view in example.views[:4]] == ["layer 1"] * 2 + ["layer 2"] * 2
    with pytest.raises(
        ValueError, match=r"needs the same sentences and tokens in all models. Got others for 'two'"
    ):
        compare_examples({"one": found["one"], "two": model_examples(folders["two"], ["the ship"])})
    with pytest.raises(ValueError, match=r"needs two or more models. Got 1"):
        compare_examples({"one": found["one"]})
    noted = {
        name: replace(each, examples=(replace(each.examples[0], note=name),)) for name, each in found.items()
    }
    assert compare_examples({"one": found["one"], "two": noted["two"]}).examples[0].note == "two"
    out = tmp_path / "page.html"
    arguments = [argument for folder in folders.values() for argument in ("--model", str(folder))]
    assert main(["explore", *arguments, "--text", TEXT, "--out", str(out)]) == 0
    assert '"start":["softmax,gamma=1,view=0","softmax,gamma=1,view=4"],"show":"heads"' in out.read_text()
    assert main(["explore", *arguments[:2], *arguments[:2], "--text", TEXT, "--out", str(out)]) == 2


def test_a_model_that_was_saved_with_a_mapping_shows_its_own_weights(tmp_path: Path) -> None:
    sparse = regmax.integrations.transformers
    sparse.register()
    model = bert().eval()
    model.set_attn_implementation("sparsemax")
    saved(model, tmp_path)
    sparse.save_pretrained(model, tmp_path)
    (example,) = model_examples(tmp_path, [TEXT]).examples
    assert [view.name for view in example.views] == [f"layer {i}, head {j}" for i in (1, 2) for j in (1, 2)]
    ids = torch.tensor([[WORDS.index(word) for word in example.source]])
    with torch.no_grad(), regmax.record_attention(model) as record:
        model(ids)
    heads = torch.cat([y[0] for y in map(record.dense, record)]).double().numpy()
    for view, y in zip(example.views, heads, strict=True):
        assert view.mapping is not None
        np.testing.assert_allclose(view.mapping(view.scores), y, atol=1e-6)
    assert any((y == 0).any() for y in heads)


def test_the_heads_of_a_sparsified_model_are_named_with_their_strengths(tmp_path: Path) -> None:
    sparse = regmax.integrations.transformers
    model = bert().eval()
    ids = torch.tensor([[WORDS.index(word) for word in TEXT.split()]])
    report = sparse.sparsify_attention(model, [{"input_ids": ids}], mapping="entmax", tolerance=0.3)
    saved(model, tmp_path)
    sparse.save_pretrained(model, tmp_path)
    (example,) = model_examples(tmp_path, [TEXT]).examples
    assert "weights that the model computed" in example.note
    for view, head in zip(example.views, report.heads, strict=True):
        label = Setting(
            "softmax" if head.strengths is None else "entmax", tuple((head.strengths or {}).items())
        ).label
        assert view.name.endswith(f": {label}")
