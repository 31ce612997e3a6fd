"""Strengths that a Hugging Face model learns: parameters of each layer, saved and loaded."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hugging import MODELS, output

import regmax
from regmax.integrations import transformers as sparse

LAYERS = {"bert": 2, "gpt2": 2, "llama": 2, "bart": 5, "t5": 6, "vit": 2}


@pytest.fixture(autouse=True)
def names() -> None:
    sparse.register()
    sparse.register("learned", regmax.nn.Fusedmax(lam=0.2, gamma=0.5, learnable=True))


def lams(model: Any) -> dict[str, torch.nn.Parameter]:
    return {name: p for name, p in model.named_parameters() if name.endswith("raw_lam")}


@pytest.mark.parametrize("architecture", MODELS)
def test_each_layer_learns_its_own_strengths(architecture: str) -> None:
    model = MODELS[architecture]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        built = model.build("learned").train()
        found = lams(built)
        assert len(found) == len({id(p) for p in found.values()}) == LAYERS[architecture]
        output(built, model.inputs()).pow(2).sum().backward()
    assert all(p.grad is not None for p in found.values())
    assert sum(float(p.grad.abs()) for p in found.values()) > 0
    assert len(lams(built)) == LAYERS[architecture]
    assert set(sparse.check(built, model.inputs()).values()) == {1}


@pytest.mark.parametrize("architecture", ["bert", "t5"])
def test_learned_strengths_are_saved_and_loaded(architecture: str, tmp_path: Path) -> None:
    model = MODELS[architecture]
    built = model.build("learned")
    with torch.no_grad():
        for number, parameter in enumerate(lams(built).values()):
            parameter.add_(0.3 * number)
    expected = output(built, model.inputs())
    sparse.save_pretrained(built, tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())["regmax"]["mappings"]["learned"]
    assert saved["learnable"] == ["lam", "gamma"]
    sparse.register("learned", regmax.nn.Fusedmax(lam=0.9, gamma=2.0, learnable=True))  # other initial values
    loaded = sparse.from_pretrained(model.model_class, tmp_path).eval()
    for (name, one), (_, other) in zip(lams(built).items(), lams(loaded).items(), strict=True):
        assert torch.equal(one, other), name
    torch.testing.assert_close(output(loaded, model.inputs()), expected)


def test_a_checkpoint_without_strengths_leaves_their_initial_values(tmp_path: Path) -> None:
    """transformers fills missing parameters with uninitialised memory."""
    model = MODELS["bert"]
    model.build("sdpa").save_pretrained(tmp_path)
    junk = [torch.full((1,), 7e7) for _ in range(999)]  # what fresh memory may hold
    del junk
    loaded = model.model_class.from_pretrained(tmp_path, attn_implementation="learned")
    mapping = next(m for m in loaded.modules() if isinstance(m, regmax.nn.Fusedmax))
    assert float(mapping.lam.detach()) == pytest.approx(0.2, rel=1e-4)
    assert float(mapping.gamma.detach()) == pytest.approx(0.5, rel=1e-4)
    assert len(lams(loaded)) == 2


def test_another_choice_drops_the_parameters() -> None:
    model = MODELS["gpt2"]
    built = model.build("sdpa")
    assert not lams(built)
    built.set_attn_implementation("learned")
    assert sparse.prepare(built) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        output(built, model.inputs())
    built.set_attn_implementation("sparsemax")
    assert sparse.prepare(built) == 0
    assert not lams(built)


def test_parameters_that_come_late_warn() -> None:
    model = MODELS["gpt2"]
    built = model.build("sdpa")
    built.set_attn_implementation("learned")
    with pytest.warns(
        UserWarning, match=r"got the parameters of 'learned' at its first call.*prepare\(model\)"
    ):
        output(built, model.inputs())
    assert len(lams(built)) == 2


def test_a_plain_from_pretrained_warns_that_the_mapping_is_dropped(tmp_path: Path) -> None:
    model = MODELS["bert"]
    sparse.save_pretrained(model.build("fusedmax"), tmp_path)
    with pytest.warns(
        UserWarning, match=r"saved by regmax with the mapping fusedmax.*the mapping is dropped"
    ) as seen:
        model.model_class.from_pretrained(tmp_path)
    assert len([each for each in seen if "dropped" in str(each.message)]) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sparse.from_pretrained(model.model_class, tmp_path)
        sparse.from_pretrained(model.model_class, tmp_path, attn_implementation="eager")
        model.model_class.from_pretrained(tmp_path, attn_implementation="sparsemax")


def test_the_position_bias_of_t5_is_not_recorded_as_weights() -> None:
    model = MODELS["t5"]
    built = model.build("sparsemax")
    with regmax.record_attention(built) as record:
        output(built, model.inputs())
    assert [len(calls) for calls in record.values()] == [1] * 6


def test_weights_are_recorded_by_layer() -> None:
    model = MODELS["bert"]
    built = model.build("learned")
    with regmax.record_attention(built) as record:
        before = output(built, model.inputs())
    assert list(record) == [f"bert.encoder.layer.{i}.attention.self" for i in range(2)]
    assert record.dense("bert.encoder.layer.0.attention.self").shape == (2, 2, 11, 11)
    torch.testing.assert_close(output(built, model.inputs()), before)
    eager = model.build("eager")
    with regmax.record_attention(eager) as record:
        output(eager, model.inputs())
    assert list(record) == [f"bert.encoder.layer.{i}.attention.self" for i in range(2)]
