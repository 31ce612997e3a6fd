"""The examples that train models run, and print the stated results."""

from __future__ import annotations

import json
import math
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_tiny_transformer_trains_with_every_mapping(capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(EXAMPLES / "train_tiny_transformer.py"))
    assert set(example["main"](steps=3)) == set(example["MAPPINGS"])
    assert capsys.readouterr().out.count("head 1") == len(example["MAPPINGS"])


@pytest.mark.long
def test_a_tiny_transformer_learns_to_answer_sparsely() -> None:
    example = runpy.run_path(str(EXAMPLES / "train_tiny_transformer.py"))
    accuracy, looked = example["evaluate"](example["train"]("fusedmax", 350))
    assert accuracy > 0.9
    assert looked < 3


def test_bert_goes_on_with_fusedmax(capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(EXAMPLES / "bert_fusedmax.py"))
    before, _, after = example["main"](steps=250)
    assert before > 0.9
    assert after > 0.9
    assert f"saved and loaded with fusedmax: accuracy {after:.3f}" in capsys.readouterr().out


def test_a_language_model_trains_with_sparse_losses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a text in which every word decides the next one."""
    example = runpy.run_path(str(EXAMPLES / "language_model.py"))
    text = tmp_path / "text.txt"
    text.write_text("one two three four five. " * 300)
    sizes = ["--steps", "60", "--batch", "8", "--length", "8", "--width", "32", "--words", "20"]
    options = example["parser"]().parse_args(["--text", str(text), *sizes])
    results = example["main"](options)
    assert list(results) == ["softmax", "entmax", "sparsemax"]
    assert all(found["accuracy"] > 0.95 for found in results.values())
    assert results["sparsemax"]["words"] < results["entmax"]["words"] < results["softmax"]["words"] == 7
    printed = capsys.readouterr().out
    assert all(f"\n{mapping}: one two three four five ." in printed for mapping in results)


def test_retrieval_at_other_lengths_keeps_finished_runs(tmp_path: Path) -> None:
    example = runpy.run_path(str(EXAMPLES / "length_generalization.py"))
    sizes = ["--lengths", "16", "40", "--steps", "3", "--sequences", "1"]
    options = ["--out", str(tmp_path), "--mappings", "softmax", "fusedmax", *sizes]
    results = example["main"](example["parser"]().parse_args(options))
    assert [(each["mapping"], each["scaled"]) for each in results] == [
        ("softmax", False),
        ("softmax", True),
        ("fusedmax", False),
        ("fusedmax", True),
    ]
    assert all(list(each["accuracy"]) == ["16", "40"] for each in results)
    assert (tmp_path / "table.md").read_text().count("\n") == 6
    assert (tmp_path / "length.png").stat().st_size > 1000
    finished = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.json")}
    (tmp_path / "fusedmax.json").unlink()
    assert example["main"](example["parser"]().parse_args(options)) == results
    changed = {path for path, time in finished.items() if path.stat().st_mtime_ns != time}
    assert changed == {tmp_path / "fusedmax.json"}


def test_an_encoder_is_sparsified_and_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "band", "plays", "on", "stage", "nobody", "."]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path / "model")
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )
    config.initializer_range = 0.5
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(tmp_path / "model")
    sentences = [" ".join(words[5 + (i + j) % 7] for j in range(4 + i % 3)) for i in range(12)]
    pairs = [
        {"gold_label": label, "sentence1": sentences[i], "sentence2": sentences[i + 1]}
        for i, label in enumerate(("entailment", "neutral", "contradiction", "entailment"))
    ]
    (tmp_path / "articles").write_text("\n".join(sentences))
    (tmp_path / "snli").write_text("\n".join(json.dumps(pair) for pair in pairs))
    example = runpy.run_path(str(EXAMPLES / "sparsify_encoder.py"))
    files = {name: str(tmp_path / "articles") for name in ("articles", "titles")}
    files |= {"snli": str(tmp_path / "snli"), "model": str(tmp_path / "model")}
    files |= {"results": str(tmp_path / "results.jsonl"), "save": str(tmp_path / "saved")}
    options = [part for name, value in files.items() for part in (f"--{name}", value)]
    options += ["--train", files["articles"], files["titles"]]
    runs = ["sparsemax tolerance=0.5", "sparsemax tolerance=0.5 tune=2 steps=1"]
    results = example["main"](example["parser"]().parse_args([*runs, *options]))
    assert [each["run"] for each in results] == ["softmax", *runs]
    softmax, sparse, _ = results
    assert softmax["cosine"] == pytest.approx(1.0)
    assert softmax["attended"] == pytest.approx(softmax["words"])
    assert softmax["lost"] == softmax["won"] == 0
    assert sparse["recall@1"] == pytest.approx(
        softmax["recall@1"] + (sparse["won"] - sparse["lost"]) / 12 * 100
    )
    assert sparse["attended"] < softmax["attended"]
    assert (tmp_path / "saved" / "sparsemax_tolerance=0.5" / "config.json").exists()
    assert "| sparsemax tolerance=0.5 |" in capsys.readouterr().out
    assert example["main"](example["parser"]().parse_args([*runs, *options])) == results


def test_only_smaller_leads_of_the_nearest_text_cost() -> None:
    """Two articles and their titles, as angles: a title leads by the difference of two cosines."""
    loss = runpy.run_path(str(EXAMPLES / "sparsify_encoder.py"))["margin_loss"]
    batch = {"attention_mask": torch.ones(4, 1)}

    def encoded(*angles: float) -> Any:
        states = torch.tensor([[math.cos(angle), math.sin(angle)] for angle in angles])
        return SimpleNamespace(last_hidden_state=states[:, None])

    original = encoded(0.0, 1.0, 0.1, 0.9)
    assert loss(original, original, batch) == 0
    assert loss(encoded(0.0, 1.5, 0.1, 1.4), original, batch) == 0
    assert loss(encoded(2.0, 3.0, 2.1, 2.9), original, batch) == pytest.approx(0, abs=1e-9)
    lead, smaller = (math.cos(0.1) - math.cos(apart) for apart in (0.9, 0.7))
    closer = loss(encoded(0.0, 0.8, 0.1, 0.7), original, batch)
    assert closer == pytest.approx(((lead - smaller) / 0.1) ** 2, rel=1e-4)
