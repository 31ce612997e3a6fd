"""`sparsify_attention`: encoders, decoders and encoder-decoders, made sparse within a tolerance."""

from __future__ import annotations

import json
import warnings
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hugging import MODELS, REAL, WORDS, output
from torch.nn import functional

import regmax
from regmax.integrations import transformers as sparse
from regmax.integrations.transformers.calibration import LayerSums, choose
from regmax.integrations.transformers.distillation import relative_error
from regmax.integrations.transformers.heads import HeadMappings, head_mappings
from regmax.integrations.transformers.tuning import Curves
from regmax.plots import record_examples

LAYERS = {"bert": 2, "gpt2": 2, "llama": 2, "bart": 5, "t5": 6, "vit": 2}
EVERY_MODEL = pytest.mark.parametrize("architecture", MODELS)
GRID = {"gamma": (0.5, 1.0, 2.0, 4.0)}


def sparsify(model: Any, inputs: dict[str, torch.Tensor], **options: Any) -> sparse.SparsifyReport:
    return sparse.sparsify_attention(
        model, [inputs], **{"mapping": "sparsemax", "tolerance": 0.3, "strengths": GRID, **options}
    )


def weights_of(model: Any, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    with torch.no_grad(), regmax.record_attention(model) as record:
        model(**inputs)
    return {name: record.dense(name) for name in record}


@EVERY_MODEL
def test_every_head_attends_to_the_fewest_words_within_the_tolerance(architecture: str) -> None:
    model = MODELS[architecture]
    built, inputs = model.build("sdpa"), model.inputs()
    state = {name: x.clone() for name, x in built.state_dict().items()}
    report = sparsify(built, inputs)
    assert built.config._attn_implementation == "sparsified"
    assert len(report.layers()) == len(head_mappings(built)) == LAYERS[architecture]
    assert report.kept < len(report.heads)
    assert report.words < report.words_before
    assert all(head.error <= 0.3 for head in report.heads)
    assert all(head.words <= head.words_before + 1e-9 for head in report.heads)
    assert all(torch.equal(x, state[name]) for name, x in built.state_dict().items())
    assert set(sparse.check(built, inputs).values()) == {1}


def test_the_report_states_what_a_head_computes() -> None:
    """The first layer sees the same inputs before and after, so its errors can be recomputed."""
    model = MODELS["llama"]  # grouped heads
    built, inputs = model.build("sdpa"), model.inputs()
    kept = {"grad": None}

    def keep(name: str) -> Any:
        return lambda module, args, out: kept.__setitem__(name, args[0].detach())

    project = built.model.layers[0].self_attn.o_proj
    hook = project.register_forward_hook(keep("before"))
    output(built, inputs)
    hook.remove()
    report = sparsify(built, inputs)
    hook = project.register_forward_hook(keep("after"))
    output(built, inputs)
    hook.remove()
    before, after = (kept[name].unflatten(-1, (4, 4))[model.real(inputs)] for name in ("before", "after"))
    errors = (after - before).square().sum((0, 2)) / before.square().sum((0, 2))
    heads = report.layers()["model.layers.0.self_attn"]
    torch.testing.assert_close(errors, torch.tensor([head.error for head in heads]), rtol=1e-4, atol=1e-6)
    y = weights_of(built, inputs)["model.layers.0.self_attn"]
    words = (y > 0).float().sum(-1).transpose(1, 2)[model.real(inputs)].mean(0)
    torch.testing.assert_close(words, torch.tensor([head.words for head in heads]), rtol=1e-5, atol=1e-5)


def test_heads_without_a_setting_keep_softmax() -> None:
    model = MODELS["bert"]
    built, inputs = model.build("sdpa"), model.inputs()
    expected = output(built, inputs)
    report = sparsify(built, inputs, tolerance=1e-12)
    assert report.kept == len(report.heads) == 4
    real = model.real(inputs)
    torch.testing.assert_close(output(built, inputs)[real], expected[real], rtol=1e-5, atol=1e-5)


def test_the_fewest_words_within_the_tolerance_win() -> None:
    sums = LayerSums(
        error=torch.tensor([[0.5, 0.01, 9.0], [0.05, 0.09, 9.0], [0.09, 0.02, 9.0]], dtype=torch.float64),
        words=torch.tensor([[1.0, 4.0, 1.0], [3.0, 2.0, 2.0], [2.0, 3.0, 3.0]], dtype=torch.float64),
        norm=torch.ones(3, dtype=torch.float64),
        words_before=torch.full((3,), 5.0, dtype=torch.float64),
        queries=torch.ones(3, dtype=torch.float64),
    )
    assert choose(sums, 0.1) == [2, 1, None]
    assert choose(sums, 1.0) == [0, 1, None]


@pytest.mark.parametrize("mapping", ["entmax", "fusedmax,lam=0.05", "oscarmax", "sqpnormmax"])
@pytest.mark.parametrize("architecture", ["bert", "llama", "t5"])
def test_mixed_heads_equal_heads_one_by_one(mapping: str, architecture: str) -> None:
    """Some heads sparse, some softmax: the weights of each are those of its own mapping."""
    model = MODELS[architecture]
    built, inputs = model.build("sdpa"), model.inputs()
    sparsify(built, inputs, mapping="sparsemax")
    name, layer = next(iter(head_mappings(built).items()))
    heads = len(layer.heads)
    row, strengths = regmax.mappings.parse(mapping)
    chosen = [None if i % 2 else {**strengths, "gamma": 1.0 + i} for i in range(heads)]
    built.get_submodule(name).regmax_mapping = HeadMappings(row.name, chosen)
    found = weights_of(built, inputs)[name]
    for head, each in enumerate(chosen):
        one = HeadMappings(row.name, [each] * heads)
        built.get_submodule(name).regmax_mapping = one
        torch.testing.assert_close(found[:, head], weights_of(built, inputs)[name][:, head])


@pytest.mark.parametrize("architecture", ["bert", "gpt2", "bart", "t5"])
def test_the_strengths_are_saved_with_the_model(architecture: str, tmp_path: Path) -> None:
    model = MODELS[architecture]
    built, inputs = model.build("sdpa"), model.inputs()
    sparsify(built, inputs)
    expected = output(built, inputs)
    sparse.save_pretrained(built, tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())["regmax"]["layers"]
    assert len(saved) == LAYERS[architecture]
    for interface in (transformers.AttentionInterface, transformers.AttentionMaskInterface):
        interface._global_mapping.pop("sparsified")  # as in a new process
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = sparse.from_pretrained(model.model_class, tmp_path).eval()
    assert torch.equal(output(again, inputs), expected)
    sparse.save_pretrained(again, tmp_path / "twice")
    assert json.loads((tmp_path / "twice" / "config.json").read_text())["regmax"]["layers"] == saved


def test_the_base_model_gets_its_strengths(tmp_path: Path) -> None:
    model = MODELS["bert"]
    built, inputs = model.build("sdpa"), model.inputs()
    sparsify(built, inputs)
    sparse.save_pretrained(built, tmp_path)
    base = sparse.from_pretrained(transformers.AutoModel, tmp_path).eval()
    assert len(head_mappings(base)) == 2
    torch.testing.assert_close(
        base(**inputs).last_hidden_state, built.bert(**inputs).last_hidden_state, rtol=0, atol=0
    )
    saved = json.loads((tmp_path / "config.json").read_text())["regmax"]["layers"]
    other = MODELS["gpt2"].build("sdpa").transformer
    with pytest.raises(ValueError, match=r"GPT2Model has none of the layers whose strengths were saved"):
        regmax.integrations.transformers.heads.restore(other, saved)


def test_loading_without_the_strengths_warns(tmp_path: Path) -> None:
    model = MODELS["bert"]
    built = model.build("sdpa")
    sparsify(built, model.inputs())
    sparse.save_pretrained(built, tmp_path)
    with pytest.warns(UserWarning, match="the mapping is dropped"):
        model.model_class.from_pretrained(tmp_path, attn_implementation="sparsified")
    with pytest.warns(UserWarning, match="the mapping is dropped"):
        model.model_class.from_pretrained(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.nn.ModuleList([built])


def test_the_weights_can_be_explored() -> None:
    model = MODELS["bert"]
    built, inputs = model.build("sdpa"), model.inputs()
    sparsify(built, inputs)
    with torch.no_grad(), regmax.record_attention(built) as record:
        built(**inputs)
    tokens = [str(i) for i in range(11)]
    assert len(record_examples(record, tokens).examples[0].views) == 4


def test_strengths_survive_casts_and_copies() -> None:
    model = MODELS["bert"]
    built, inputs = model.build("sdpa"), model.inputs()
    sparsify(built, inputs, mapping="fusedmax,lam=0.1")
    heads = {name: own.heads for name, own in head_mappings(built).items()}
    expected = output(built, inputs)
    assert torch.equal(output(deepcopy(built), inputs), expected)
    half = deepcopy(built).bfloat16()
    assert {name: own.heads for name, own in head_mappings(half).items()} == heads
    for own in head_mappings(half.float()).values():
        assert own.resolved_heads().omega.theta.dtype == torch.float32
    assert functional.cosine_similarity(output(half, inputs).flatten(), expected.flatten(), dim=0) > 0.95


def test_a_sparsified_model_generates_and_trains() -> None:
    model = MODELS["llama"]
    built, inputs = model.build("sdpa"), model.inputs(left=True)
    sparsify(built, inputs)
    options = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    cached = built.generate(**inputs, **options)
    assert torch.equal(cached, built.generate(**inputs, **options, use_cache=False))
    built(**inputs, labels=inputs["input_ids"]).loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in built.parameters())


def test_it_can_be_repeated_with_another_tolerance() -> None:
    model = MODELS["gpt2"]
    built, inputs = model.build("sdpa"), model.inputs()
    strict, loose = (sparsify(built, inputs, tolerance=each) for each in (0.02, 0.5))
    fresh = sparsify(model.build("sdpa"), inputs, tolerance=0.5)
    assert loose.words < strict.words
    assert loose.heads == fresh.heads


@pytest.mark.parametrize("architecture", ["bert", "llama", "t5"])
def test_a_support_replaces_the_tolerance(architecture: str) -> None:
    model = MODELS[architecture]
    built, inputs = model.build("sdpa"), model.inputs()
    most, fewest = (sparsify(built, inputs, tolerance=each).words for each in (0.02, 1e3))
    report = sparsify(built, inputs, support=(most + fewest) / 2)
    assert fewest - 1 < report.words < most
    with pytest.raises(ValueError, match=r"support=...\)` must be at least .*the fewest words.*Got 1"):
        sparsify(built, inputs, support=1.0, strengths={"gamma": (8.0,)})


@pytest.mark.parametrize("architecture", ["bert", "gpt2", "t5"])
def test_distillation_brings_the_outputs_closer(architecture: str) -> None:
    model = MODELS[architecture]
    inputs = model.inputs()
    plain = sparsify(model.build("sdpa"), inputs, tolerance=1.0)
    built = model.build("sdpa")
    plan = sparse.Distillation([inputs], steps=30, learning_rate=3e-3)
    report = sparsify(built, inputs, tolerance=1.0, distill=plan)
    assert report.output_error < 0.7 * plain.output_error
    assert len(report.losses) == 30
    assert report.losses[-1] < report.losses[0]
    assert not built.training
    assert all(p.requires_grad and p.grad is None for p in built.parameters())


@pytest.mark.parametrize("architecture", ["bert", "gpt2", "t5"])
@pytest.mark.parametrize("mapping", ["sparsemax", "entmax"])
def test_tuning_brings_the_outputs_closer_with_as_many_words(architecture: str, mapping: str) -> None:
    model = MODELS[architecture]
    inputs = model.inputs()
    options = {"mapping": mapping, "tolerance": 0.3}
    plain = sparsify(model.build("sdpa"), inputs, **options)
    built = model.build("sdpa")
    state = {name: x.clone() for name, x in built.state_dict().items()}
    report = sparsify(built, inputs, **options, tune=sparse.Tuning([inputs], steps=30))
    assert report.tuning[-1] < report.tuning[0]
    assert report.output_error < plain.output_error
    assert report.words == pytest.approx(plain.words, rel=0.15)  # held on curves, with the inputs of softmax
    assert len(report.tuning) == 30
    assert not report.losses
    assert "tuned for 30 steps" in str(report)
    assert all(torch.equal(x, state[name]) for name, x in built.state_dict().items())
    assert all(p.requires_grad and p.grad is None for p in built.parameters())
    for one, other in zip(report.heads, plain.heads, strict=True):
        assert (one.strengths is None) == (other.strengths is None)
        if one.strengths is not None:
            assert 0.5 - 1e-6 <= one.strengths["gamma"] <= 4.0 + 1e-6
            assert {**one.strengths, "gamma": 1.0} == {**other.strengths, "gamma": 1.0}
    found = [head for own in head_mappings(built).values() for head in own.heads]
    assert found == [head.strengths for head in report.heads]


@pytest.mark.parametrize("argument", ["tune", "distill"])
def test_a_loss_replaces_the_error_of_the_output(argument: str) -> None:
    model = MODELS["bert"]
    inputs = model.inputs()
    kind = {"tune": sparse.Tuning, "distill": sparse.Distillation}[argument]

    def logits(outputs: Any, _: Any) -> torch.Tensor:
        return outputs.logits

    def error(found: Any, wanted: Any, batch: Any) -> torch.Tensor:
        assert batch.keys() == inputs.keys()
        assert found.logits.requires_grad
        assert not wanted.logits.requires_grad
        return relative_error(found.logits, wanted.logits)

    def losses(**options: Any) -> tuple[float, ...]:
        report = sparsify(model.build("sdpa"), inputs, **{argument: kind([inputs], steps=5, **options)})
        return report.tuning + report.losses

    assert losses(loss=error) == losses(output=logits) != losses(loss=lambda *given: 2 * error(*given))
    with pytest.raises(ValueError, match=r"output=..., loss=...\)`.*Got both: pass one"):
        kind([inputs], output=logits, loss=error)


def test_tuned_heads_can_be_distilled_and_saved(tmp_path: Path) -> None:
    model = MODELS["bert"]
    built, inputs = model.build("sdpa"), model.inputs()
    plans = {"tune": sparse.Tuning([inputs], steps=3), "distill": sparse.Distillation([inputs], steps=4)}
    report = sparsify(built, inputs, **plans)
    assert (len(report.tuning), len(report.losses)) == (3, 4)
    sparse.save_pretrained(built, tmp_path)
    again = sparse.from_pretrained(model.model_class, tmp_path).eval()
    assert torch.equal(output(again, inputs), output(built, inputs))


def test_heads_that_all_keep_softmax_are_not_tuned() -> None:
    model = MODELS["bert"]
    built, inputs = model.build("sdpa"), model.inputs()
    report = sparsify(built, inputs, tolerance=1e-12, tune=sparse.Tuning([inputs], steps=3))
    assert report.kept == len(report.heads)
    assert report.tuning == ()


def test_curves_are_interpolated() -> None:
    logs = torch.tensor([0.0, 1.0, 3.0])
    values = torch.tensor([[1.0, 2.0, 6.0], [3.0, 5.0, 5.0]])
    curves = Curves(logs, values, values)
    for at, expected in ((0.0, (1.0, 3.0)), (0.25, (1.25, 3.5)), (1.0, (2.0, 5.0)), (3.0, (6.0, 5.0))):
        assert curves.at(values, torch.full((2,), at)).tolist() == pytest.approx(expected)
    place = torch.tensor([0.5, 2.0], requires_grad=True)
    curves.at(values, place).sum().backward()
    assert place.grad is not None
    assert place.grad.tolist() == [1.0, 0.0]


def test_the_metric_is_measured_before_and_after() -> None:
    model = MODELS["bert"]
    built, inputs = model.build("sdpa"), model.inputs()
    seen = []

    def metric(model: Any) -> float:
        seen.append(model.config._attn_implementation)
        assert not model.training
        return float(output(model, inputs).mean())

    built.train()
    report = sparsify(built, inputs, metric=metric)
    assert built.training
    assert seen == ["sdpa", "sparsified"]
    assert report.before != report.after
    assert f"metric {report.before:g} -> {report.after:g}" in str(report)
    assert "bert.encoder.layer.1.attention.self" in str(report)
    assert str(report.details()).count("\n") == len(report.heads) - 1


class Stop(BaseException):
    """As KeyboardInterrupt, which pytest takes for its own."""


@pytest.mark.parametrize("moment", ["calibrating", "tuning", "distilling", "metric"])
@pytest.mark.parametrize("error", [ValueError, Stop])
def test_a_failure_leaves_the_model_as_it_was(moment: str, error: type[BaseException]) -> None:
    model = MODELS["t5"]
    built, inputs = model.build("eager").train(), model.inputs()
    state = {name: x.clone() for name, x in built.state_dict().items()}

    def batches(stop: bool) -> Any:
        yield inputs
        if stop:
            raise error("stop")
        yield inputs

    calls = []

    def metric(_: Any) -> float:
        calls.append(1)
        if moment == "metric" and len(calls) == 2:
            raise error("stop")
        return 0.0

    class Loader:
        def __init__(self, use: str) -> None:
            self.use = use

        def __iter__(self) -> Any:
            return batches(moment == self.use)

    # The second batch of the calibration has the wrong type, which only the model finds.
    wrong = {**inputs, "input_ids": inputs["input_ids"].float()}
    given = [inputs, wrong] if moment == "calibrating" and error is ValueError else [inputs]
    if moment == "calibrating" and error is Stop:
        given = batches(True)
    with pytest.raises((error, RuntimeError)):
        sparse.sparsify_attention(
            built,
            given,
            mapping="sparsemax",
            strengths=GRID,
            metric=metric,
            tune=sparse.Tuning(Loader("tuning"), steps=5),
            distill=sparse.Distillation(Loader("distilling"), steps=5),
        )
    assert built.training
    for part in built.modules():
        if isinstance(part, transformers.PreTrainedModel):
            assert part.config._attn_implementation == "eager"
    assert not head_mappings(built)
    assert all(torch.equal(x, state[name]) for name, x in built.state_dict().items())
    assert sparsify(built, inputs).words > 0  # and a second attempt works


def test_padding_does_not_count() -> None:
    model = MODELS["bert"]
    inputs = model.inputs()
    one = {name: x[1:] for name, x in inputs.items()}
    short = {name: x[1:, :REAL] for name, x in inputs.items()}
    padded, cut = (sparsify(model.build("sdpa"), each) for each in (one, short))
    for a, b in zip(padded.heads, cut.heads, strict=True):
        assert a.strengths == b.strengths
        assert (a.words, a.words_before) == pytest.approx((b.words, b.words_before))
        assert a.error == pytest.approx(b.error, rel=1e-4, abs=1e-9)


def test_models_with_their_own_attention_are_refused() -> None:
    bloom = transformers.BloomModel(
        transformers.BloomConfig(vocab_size=WORDS, hidden_size=16, n_layer=1, n_head=2)
    )
    with pytest.raises(
        RuntimeError, match=r"BloomModel does not use regmax\. This model has attention of its"
    ):
        sparse.sparsify_attention(bloom, [{"input_ids": torch.ones(1, 3, dtype=torch.long)}])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mapping": "softmax"}, r"mapping=...\)` must be a mapping with zeros\. Got 'softmax'"),
        ({"mapping": "sparsmax"}, "did you mean sparsemax"),
        ({"tolerance": 0.0}, r"tolerance=...\)` must be positive\. Got 0"),
        ({"support": 0.5}, r"support=...\)` must be at least 1 word\. Got 0.5"),
        ({"strengths": {"gamma": (0.0,)}}, "must be positive"),
        ({"strengths": {"lam": (0.1,)}}, r"`sparsemax` has the strengths gamma\. Got 'lam"),
    ],
)
def test_bad_arguments_raise(options: dict[str, Any], message: str) -> None:
    model = MODELS["bert"]
    with pytest.raises(ValueError, match=message):
        sparsify(model.build("sdpa"), model.inputs(), **options)


def test_bad_inputs_raise() -> None:
    model = MODELS["bert"]
    with pytest.raises(ValueError, match=r"needs at least one batch\. Got none"):
        sparse.sparsify_attention(model.build("sdpa"), [])
    with pytest.raises(TypeError, match=r"needs batches of keyword arguments.*Got Tensor"):
        sparse.sparsify_attention(model.build("sdpa"), [torch.ones(1, 3)])
    with pytest.raises(TypeError, match=r"must be a mapping's name.*Got SquaredNorm"):
        sparsify(model.build("sdpa"), model.inputs(), mapping=regmax.SquaredNorm())
    with pytest.raises(TypeError, match=r"needs a model of transformers\. Got Linear"):
        sparse.sparsify_attention(torch.nn.Linear(2, 2), [])
    sparse.register()
    with pytest.raises(ValueError, match=r"needs a model with softmax\. Got attn_implementation='fusedmax'"):
        sparsify(model.build("fusedmax"), model.inputs())
    with pytest.raises(ValueError, match=r"steps=...\)` must be at least 1\. Got 0"):
        sparse.Distillation([], steps=0)
    with pytest.raises(ValueError, match=r"learning_rate=...\)` must be positive\. Got 0"):
        sparse.Distillation([], learning_rate=0.0)
    with pytest.raises(ValueError, match=r"`Tuning\(..., steps=...\)` must be at least 1\. Got 0"):
        sparse.Tuning([], steps=0)
    plan = sparse.Tuning([model.inputs()], steps=1)
    with pytest.raises(ValueError, match=r"at least two. Got 2 only"):
        sparsify(model.build("sdpa"), model.inputs(), strengths={"gamma": (2.0,)}, tolerance=9.0, tune=plan)
    with pytest.raises(ValueError, match="ran out of batches"):
        sparsify(model.build("sdpa"), model.inputs(), distill=sparse.Distillation([], steps=2))
