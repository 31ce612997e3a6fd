"""The choice of the implementation: names, the check that it is called, saving and restoring."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hugging import MODELS, WORDS, output

import regmax
from regmax.integrations import transformers as sparse

CALLS = {"bert": 2, "gpt2": 2, "llama": 2, "bart": 5, "t5": 6, "vit": 2}
WORD_IDS = {"input_ids": torch.arange(3, 10)[None]}


@pytest.fixture(autouse=True)
def names() -> None:
    sparse.register()


@pytest.mark.parametrize("architecture", MODELS)
def test_the_check_counts_every_layer_and_leaves_no_trace(architecture: str) -> None:
    model = MODELS[architecture]
    built = model.build("fusedmax").train()
    calls = sparse.check(built, model.inputs())
    assert len(calls) == CALLS[architecture]
    assert set(calls.values()) == {1}
    assert all(isinstance(built.get_submodule(name), torch.nn.Module) for name in calls)
    assert built.training
    assert not any(module._forward_hooks for module in built.modules())
    assert sparse.check(built, model.inputs()) == calls


def bloom() -> Any:
    return transformers.BloomModel(
        transformers.BloomConfig(vocab_size=WORDS, hidden_size=16, n_layer=1, n_head=2)
    )


def deberta() -> Any:
    config = transformers.DebertaV2Config(
        vocab_size=WORDS, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24
    )
    return transformers.DebertaV2Model(config)


def xlnet() -> Any:
    return transformers.XLNetModel(
        transformers.XLNetConfig(vocab_size=WORDS, d_model=16, n_layer=1, n_head=2, d_inner=24)
    )


@pytest.mark.parametrize("build", [bloom, deberta, xlnet])
def test_the_check_raises_where_a_model_only_takes_the_name(build: Any) -> None:
    model = build()
    model.config._attn_implementation = "fusedmax"
    with pytest.raises(
        RuntimeError, match="without regmax, although its `attn_implementation` is 'fusedmax'"
    ):
        sparse.check(model, WORD_IDS)


@pytest.mark.parametrize("build", [bloom, deberta, xlnet])
def test_the_check_does_not_advise_what_a_model_ignores(build: Any) -> None:
    sparse.register()
    model = build()
    model.set_attn_implementation("fusedmax")
    with pytest.raises(
        RuntimeError, match=r"attention of its own, which cannot be chosen: use another model\.$"
    ):
        sparse.check(model, WORD_IDS)


def test_the_check_raises_where_another_implementation_is_chosen() -> None:
    model = MODELS["gpt2"]
    with pytest.raises(RuntimeError, match="does not use regmax: its `attn_implementation` is 'eager'"):
        sparse.check(model.build("eager"), model.inputs())


def test_the_check_raises_where_a_part_goes_its_own_way() -> None:
    encoder, decoder = MODELS["vit"].build("fusedmax"), MODELS["gpt2"]
    config = decoder.config()
    config.add_cross_attention = True
    text = decoder.model_class._from_config(config, attn_implementation="eager")
    model = transformers.VisionEncoderDecoderModel(encoder=encoder, decoder=text)
    inputs = {**MODELS["vit"].inputs(), "decoder_input_ids": torch.ones(2, 3, dtype=torch.long)}
    with pytest.raises(RuntimeError, match=r"in decoder\.transformer\.h\.0\.attn"):
        sparse.check(model, inputs)
    model.set_attn_implementation("fusedmax")
    assert len(sparse.check(model, inputs)) == 2 + 2 * 2


def test_the_registry_is_restored_after_a_failed_check() -> None:
    model = MODELS["gpt2"].build("fusedmax")
    with pytest.raises(ValueError, match="You have to specify"):
        sparse.check(model, {})
    assert sparse.check(model, WORD_IDS)


@pytest.mark.parametrize("name", ["eager", "my-sdpa", "flash", "flex_attention", "owner/name"])
def test_names_that_transformers_reads_a_meaning_into_raise(name: str) -> None:
    with pytest.raises(ValueError, match="must not contain"):
        sparse.register(name, regmax.SquaredNorm())


def test_other_implementations_are_not_replaced() -> None:
    transformers.AttentionInterface.register("theirs", lambda *args, **options: None)
    with pytest.raises(ValueError, match=r"must not replace another library's implementation\. Got 'theirs'"):
        sparse.register("theirs", "fusedmax")


def test_a_wrong_mapping_raises_at_once() -> None:
    with pytest.raises(ValueError, match="`mapping` must be one of"):
        sparse.register("my-mapping")
    with pytest.raises(TypeError, match=r"a name, a regularizer, a module or a callable\. Got int"):
        sparse.register("my-mapping", 3)
    with pytest.raises(ValueError, match="needs a name"):
        sparse.register(mapping="fusedmax")


def test_what_a_model_adds_to_attention_is_computed_or_refused() -> None:
    attend = regmax.integrations.transformers.layers.registered("fusedmax")
    q = torch.zeros(1, 2, 3, 4)
    with pytest.raises(NotImplementedError, match="Linear calls its attention with `block_indices`"):
        attend(torch.nn.Linear(1, 1), q, q, q, None, block_indices=torch.zeros(1))


def test_from_pretrained_takes_the_name(tmp_path: Path) -> None:
    model = MODELS["bert"]
    built, inputs = model.build("fusedmax"), model.inputs()
    built.save_pretrained(tmp_path)  # transformers' own, which does not save the choice
    assert model.model_class.from_pretrained(tmp_path).config._attn_implementation == "sdpa"
    again = model.model_class.from_pretrained(tmp_path, attn_implementation="fusedmax").eval()
    assert torch.equal(output(again, inputs), output(built, inputs))


SAVED = {
    "name": ("fusedmax", "fusedmax"),
    "regularizer": ("fusedmax-strong", regmax.FusedLasso(lam=0.5)),
    "partial": ("sqpnormmax-sharp", partial(regmax.sqpnormmax, p=1.25, gamma=0.5)),
    "module": ("oscarmax-module", regmax.nn.Oscarmax(lam=0.02, gamma=2.0)),
    "composition": ("paper", regmax.OscarComposition(lam=0.02)),
}


@pytest.mark.parametrize("kind", SAVED)
@pytest.mark.parametrize("architecture", ["bert", "t5"])
def test_a_saved_model_comes_back_with_its_mapping(architecture: str, kind: str, tmp_path: Path) -> None:
    name, mapping = SAVED[kind]
    sparse.register(name, mapping)
    model = MODELS[architecture]
    built, inputs = model.build(name), model.inputs()
    sparse.save_pretrained(built, tmp_path)
    expected = output(built, inputs)
    _forget(name)
    again = sparse.from_pretrained(model.model_class, tmp_path).eval()
    assert again.config._attn_implementation == name
    assert torch.equal(output(again, inputs), expected)
    assert sparse.check(again, inputs)
    # A restored model can be saved again.
    before = json.loads((tmp_path / "config.json").read_text())["regmax"]
    sparse.save_pretrained(again, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["regmax"] == before


def _forget(name: str) -> None:
    """As in a new process."""
    for interface in (transformers.AttentionInterface, transformers.AttentionMaskInterface):
        interface._global_mapping.pop(name)


def test_parts_keep_their_own_choice(tmp_path: Path) -> None:
    text, pixels = MODELS["gpt2"].config(), MODELS["vit"].config()
    text.add_cross_attention = True
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(pixels, text)
    choice = {"encoder": "fusedmax", "decoder": "sparsemax"}
    model = transformers.VisionEncoderDecoderModel._from_config(config, attn_implementation=choice)
    sparse.save_pretrained(model, tmp_path)
    again = sparse.from_pretrained(transformers.VisionEncoderDecoderModel, tmp_path)
    assert again.encoder.config._attn_implementation == "fusedmax"
    assert again.decoder.config._attn_implementation == "sparsemax"


def test_a_function_must_be_registered_again(tmp_path: Path) -> None:
    sparse.register("own", lambda scores, dim, mask=None: regmax.sparsemax(2 * scores, dim, mask=mask))
    model = MODELS["gpt2"].build("own")
    sparse.save_pretrained(model, tmp_path)
    assert sparse.from_pretrained(transformers.AutoModel, tmp_path).config._attn_implementation == "own"
    _forget("own")
    with pytest.raises(ValueError, match=r"Call `register\('own', mapping\)` before `from_pretrained`"):
        sparse.from_pretrained(transformers.AutoModel, tmp_path)


def test_one_name_for_two_mappings_raises(tmp_path: Path) -> None:
    sparse.register("ambiguous", regmax.FusedLasso(lam=0.5))
    sparse.save_pretrained(MODELS["gpt2"].build("ambiguous"), tmp_path)
    sparse.register("ambiguous", regmax.FusedLasso(lam=0.25))
    with pytest.raises(ValueError, match="a mapping 'ambiguous' that differs from the one registered now"):
        sparse.from_pretrained(transformers.AutoModel, tmp_path)


def test_tensors_among_the_strengths_are_not_saved(tmp_path: Path) -> None:
    sparse.register("per-head", regmax.FusedLasso(lam=torch.full((2, 1, 1), 0.1)))
    with pytest.raises(
        TypeError, match=r"only strengths that are numbers or learned\. 'per-head' has a tensor"
    ):
        sparse.save_pretrained(MODELS["gpt2"].build("per-head"), tmp_path)


def test_a_later_choice_of_another_implementation_is_saved_too(tmp_path: Path) -> None:
    model = MODELS["gpt2"].build("fusedmax")
    sparse.save_pretrained(model, tmp_path)
    model.set_attn_implementation("eager")
    sparse.save_pretrained(model, tmp_path)
    assert "regmax" not in json.loads((tmp_path / "config.json").read_text())
    assert sparse.from_pretrained(transformers.AutoModel, tmp_path).config._attn_implementation == "sdpa"


def test_a_config_that_names_no_regularizer_raises(tmp_path: Path) -> None:
    sparse.save_pretrained(MODELS["gpt2"].build("fusedmax"), tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["regmax"]["mappings"] = {"new": {"regularizer": "dataclass", "gamma": 1.0}}
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"unknown regularizer\. Got 'dataclass'"):
        sparse.from_pretrained(transformers.AutoModel, tmp_path)
