"""Hugging Face models through the mappings: six architectures, tiny and random."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers
from hugging import LENGTH, MODELS, PAD, REAL, WORDS, Model, output
from torch.nn import functional

import regmax
from regmax.integrations import transformers as sparse
from regmax.kernels.native import attention as core

MAPPINGS = ("softmax", "sparsemax", "fusedmax", "oscarmax", "sqpnormmax", "entmax")
EVERY_MODEL = pytest.mark.parametrize("architecture", MODELS)
TEXTS = pytest.mark.parametrize("architecture", [name for name, model in MODELS.items() if not model.pixels])
EVERY_MAPPING = pytest.mark.parametrize("mapping", MAPPINGS)
GENERATORS = pytest.mark.parametrize("architecture", [name for name, model in MODELS.items() if model.causal])


@pytest.fixture(autouse=True)
def names() -> None:
    sparse.register()


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@EVERY_MODEL
@pytest.mark.parametrize("left", [False, True])
def test_softmax_equals_eager_at_real_positions(architecture: str, left: bool) -> None:
    model = MODELS[architecture]
    inputs = model.inputs(left=left)
    ours, eager = (output(model.build(name), inputs) for name in ("softmax", "eager"))
    real = model.real(inputs)
    torch.testing.assert_close(ours[real], eager[real], rtol=1e-5, atol=1e-5)


def test_a_sliding_window_is_kept() -> None:
    config = transformers.MistralConfig(
        vocab_size=WORDS,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=24,
        sliding_window=3,
    )
    model = transformers.AutoModel.from_config(config, attn_implementation="fusedmax").eval()
    words = torch.arange(3, 3 + LENGTH)[None]
    (y,) = model(words, output_attentions=True).attentions
    places = torch.arange(LENGTH)
    distance = places[:, None] - places
    assert torch.all(y[..., (distance < 0) | (distance >= 3)] == 0)
    torch.testing.assert_close(y.sum(-1), torch.ones_like(y[..., 0]))
    before = model(words).last_hidden_state
    words[0, 0] = 17
    assert torch.equal(model(words).last_hidden_state[:, 3:], before[:, 3:])


@TEXTS
@EVERY_MAPPING
def test_padding_does_not_leak(architecture: str, mapping: str) -> None:
    model = MODELS[architecture]
    built, inputs = model.build(mapping), model.inputs()
    before = output(built, inputs)
    inputs["input_ids"] = inputs["input_ids"].clone()
    inputs["input_ids"][1, REAL:] = 17
    real = model.real(inputs)
    assert torch.equal(output(built, inputs)[real], before[real])


@GENERATORS
@EVERY_MAPPING
def test_the_future_does_not_leak(architecture: str, mapping: str) -> None:
    model = MODELS[architecture]
    built, inputs = model.build(mapping), model.inputs()
    name = "decoder_input_ids" if model.encoder_decoder else "input_ids"
    del inputs["attention_mask"]  # without padding transformers may omit the mask
    before = output(built, inputs)
    inputs[name] = inputs[name].clone()
    inputs[name][:, -1] = (inputs[name][:, -1] + 1) % WORDS
    after = output(built, inputs)
    assert torch.equal(after[:, :-1], before[:, :-1])
    assert not torch.equal(after[:, -1], before[:, -1])


def loss_of(model: Model, built: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    if model.pixels:
        return built(**inputs).last_hidden_state[:, 0].pow(2).mean()
    labels = inputs["decoder_input_ids" if model.encoder_decoder else "input_ids"]
    return built(**inputs, labels=labels.masked_fill(labels == PAD, -100)).loss


@EVERY_MODEL
@EVERY_MAPPING
def test_a_training_step_lowers_the_loss(architecture: str, mapping: str) -> None:
    model = MODELS[architecture]
    built, inputs = model.build(mapping), model.inputs()
    before = loss_of(model, built, inputs)
    before.backward()
    gradients = [p.grad for p in built.parameters() if p.grad is not None]
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    assert any(
        (p.grad != 0).any()
        for n, p in built.named_parameters()
        if any(part in n for part in QUERIES) and p.grad is not None
    )
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
    torch.optim.SGD(built.parameters(), lr=1e-3 / float(norm)).step()
    with torch.no_grad():
        assert loss_of(model, built, inputs) < before


# The names of the query projections in the six models: only the mapping passes them a gradient.
QUERIES = ("query", "c_attn", "q_proj", ".q.")


@EVERY_MODEL
@pytest.mark.parametrize("mapping", ["fusedmax", "sqpnormmax"])
def test_attentions_are_the_sparse_weights(architecture: str, mapping: str) -> None:
    model = MODELS[architecture]
    inputs = model.inputs()
    out = model.build(mapping)(**inputs, output_attentions=True)
    kinds = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")
    weights = [y for kind in kinds for y in (out.get(kind) or ())]
    assert len(weights) == {"bart": 5, "t5": 6}.get(architecture, 2)
    for y in weights:
        torch.testing.assert_close(y.sum(-1), torch.ones_like(y[..., 0]))
        if y.shape[-1] == LENGTH and not model.pixels:
            assert torch.all(y[1, ..., REAL:] == 0)
    assert any((y[0] == 0).any() for y in weights)


@EVERY_MODEL
def test_no_weights_are_made_for_nobody(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from regmax.integrations.transformers import interface

    asked: list[bool] = []
    attention = interface.attention

    def watched(*args: Any, **options: Any) -> Any:
        asked.append(options["return_weights"])
        return attention(*args, **options)

    monkeypatch.setattr(interface, "attention", watched)
    model = MODELS[architecture]
    built = model.build("fusedmax")
    built(**model.inputs())
    assert asked
    assert not any(asked)


@GENERATORS
@EVERY_MAPPING
def test_generation_with_cache_equals_generation_without(architecture: str, mapping: str) -> None:
    model = MODELS[architecture]
    built, inputs = model.build(mapping), model.inputs(left=not model.encoder_decoder)
    inputs.pop("decoder_input_ids", None)
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": PAD}
    cached = built.generate(**inputs, **options, use_cache=True)
    assert torch.equal(cached, built.generate(**inputs, **options, use_cache=False))


def test_generation_with_a_static_cache_and_beams() -> None:
    model = MODELS["llama"]
    built, inputs = model.build("fusedmax"), model.inputs(left=True)
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": PAD, "num_beams": 2}
    dynamic = built.generate(**inputs, **options)
    static = built.generate(**inputs, **options, cache_implementation="static", disable_compile=True)
    assert torch.equal(dynamic, static)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_every_step_of_generation_is_fused(cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["llama"]
    built, inputs = model.build("fusedmax"), model.inputs(left=True)
    forward, forward_strided, queries = core.forward, core.forward_strided, []

    def counted(problem: core.Problem, operands: core.Operands, **options: bool) -> object:
        queries.append(operands.q.shape[-2])
        return forward(problem, operands, **options)

    def counted_strided(call: core.StridedCall, q: torch.Tensor, *others: torch.Tensor | None) -> None:
        queries.append(q.shape[-2])
        forward_strided(call, q, *others)

    monkeypatch.setattr(core, "forward", counted)
    monkeypatch.setattr(core, "forward_strided", counted_strided)
    options = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": PAD, "disable_compile": True}
    built.generate(**inputs, **options, cache_implementation=cache)
    layers = built.config.num_hidden_layers
    assert queries == [inputs["input_ids"].shape[1]] * layers + [1] * 3 * layers


@EVERY_MODEL
def test_the_implementation_can_be_changed_later(architecture: str) -> None:
    if architecture == "t5" and tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 20):
        pytest.skip("the transformers of constraints-oldest.txt does not change the stacks of T5")
    model = MODELS[architecture]
    inputs = model.inputs()
    real = model.real(inputs)
    built = model.build("eager")
    eager = output(built, inputs)
    built.set_attn_implementation("fusedmax")
    assert torch.equal(output(built, inputs), output(model.build("fusedmax"), inputs))
    assert not torch.allclose(output(built, inputs)[real], eager[real])
    built.set_attn_implementation("eager")
    assert torch.equal(output(built, inputs), eager)


def test_a_model_compiles_without_graph_breaks(fresh_compiler: None) -> None:
    model = MODELS["llama"]
    built, inputs = model.build("fusedmax"), model.inputs()
    expected = output(built, inputs)
    (gradient,) = torch.autograd.grad(expected.pow(2).sum(), next(built.parameters()))
    compiled = torch.compile(built, backend="aot_eager", fullgraph=True)
    ours = output(compiled, inputs)
    torch.testing.assert_close(ours, expected)
    (ours,) = torch.autograd.grad(ours.pow(2).sum(), next(built.parameters()))
    # Compiled attention has dense weights: its sums have another order.
    torch.testing.assert_close(ours, gradient, rtol=1e-4, atol=1e-5 * float(gradient.abs().max()))


def test_strengths_have_names_of_their_own() -> None:
    sparse.register("fusedmax-strong", regmax.FusedLasso(lam=5.0))
    model = MODELS["vit"]
    weights = model.build("fusedmax-strong")(**model.inputs(), output_attentions=True).attentions
    assert all(
        torch.equal(y, y[..., :1].expand_as(y)) for y in weights
    )  # lam is so large that everything is fused


def test_a_learnable_module_can_be_registered() -> None:
    mapping = regmax.nn.Fusedmax(lam=torch.full((2, 1, 1), 0.1), learnable=True)
    sparse.register("learned", mapping)
    model = MODELS["bert"]
    inputs = model.inputs()
    built = model.build("learned")
    loss_of(model, built, inputs).backward()
    found = [p for name, p in built.named_parameters() if "regmax_mapping" in name]
    assert len(found) == 4  # lam and gamma of two layers
    assert all(torch.isfinite(p.grad).all() and p.grad.abs().sum() > 0 for p in found)


@pytest.mark.parametrize("value", [torch.finfo(torch.float32).min, -torch.inf])
def test_a_float_mask_deletes_like_a_boolean_one(value: float) -> None:
    model = MODELS["llama"]
    built, inputs = model.build("fusedmax"), model.inputs()
    mask = (
        inputs["attention_mask"].bool()[:, None, None] & torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    )
    additive = torch.zeros(mask.shape).masked_fill(~mask, value)
    ours = output(built, {**inputs, "attention_mask": additive})
    assert torch.equal(ours[model.real(inputs)], output(built, inputs)[model.real(inputs)])
    assert torch.equal(ours, output(built, {**inputs, "attention_mask": mask}))


@EVERY_MODEL
@pytest.mark.parametrize("mapping", ["softmax", "fusedmax"])
@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision(architecture: str, mapping: str, autocast: bool) -> None:
    model = MODELS[architecture]
    inputs, full = model.inputs(), model.build(mapping)
    real = model.real(inputs)
    expected = output(full, inputs)[real]
    half = full if autocast else full.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        if model.pixels and not autocast:
            inputs = {"pixel_values": inputs["pixel_values"].bfloat16()}
        ours = output(half, inputs)[real].float()
    assert functional.cosine_similarity(ours.flatten(), expected.flatten(), dim=0) > 0.95


def test_queries_and_keys_of_another_type_than_the_values() -> None:
    config = transformers.Qwen3Config(
        vocab_size=WORDS,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        intermediate_size=24,
    )
    model = transformers.AutoModel.from_config(config, attn_implementation="fusedmax")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(torch.arange(3, 3 + LENGTH)[None]).last_hidden_state.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
