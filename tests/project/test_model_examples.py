"""The examples that train models run, and print the stated results."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_tiny_transformer_trains_with_every_mapping(capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(EXAMPLES / "train_tiny_transformer.py"))
    assert set(example["main"](steps=3)) == set(example["MAPPINGS"])
    assert capsys.readouterr().out.count("head 1") == 5


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
