"""gamma is lowered in any training loop, from dense to sparse."""

from __future__ import annotations

import copy

import pytest
import torch

import regmax


def model() -> torch.nn.Sequential:
    return torch.nn.Sequential(
        torch.nn.Linear(3, 3), regmax.nn.Sparsemax(), torch.nn.Sequential(regmax.nn.Fusedmax())
    )


def gammas(modules: torch.nn.Sequential) -> set[float]:
    return {modules[1].strengths["gamma"], modules[2][0].strengths["gamma"]}


def test_gamma_is_set_on_every_mapping_of_a_model() -> None:
    modules = model()
    schedule = regmax.nn.AnnealGamma(modules, start=5.0, end=1.0, steps=4, delay=1)
    seen = [gammas(modules)]
    for _ in range(7):
        schedule.step()
        seen.append(gammas(modules))
    assert seen == [{5.0}, {5.0}, {4.0}, {3.0}, {2.0}, {1.0}, {1.0}, {1.0}]
    assert schedule.finished


def test_weights_become_sparser() -> None:
    mapping = regmax.nn.Sparsemax()
    schedule = regmax.nn.AnnealGamma(mapping, start=8.0, end=1.0, steps=1)
    scores = torch.tensor([2.0, 1.5, 0.5, 0.0])
    before = int((mapping(scores) != 0).sum())
    schedule.step()
    assert before == 4
    assert int((mapping(scores) != 0).sum()) == 2


def test_the_state_is_saved_and_restored() -> None:
    one, other = model(), model()
    first, second = (regmax.nn.AnnealGamma(m, start=4.0, end=1.0, steps=6) for m in (one, other))
    for _ in range(4):
        first.step()
    second.load_state_dict(first.state_dict())
    assert gammas(other) == gammas(one) == {2.0}


def test_a_learned_gamma_is_left_alone() -> None:
    modules = torch.nn.ModuleList([regmax.nn.Sparsemax(learnable=True), regmax.nn.Sparsemax()])
    regmax.nn.AnnealGamma(modules, start=4.0, end=1.0, steps=1)
    assert modules[0].strengths["gamma"].item() == pytest.approx(1.0)
    assert modules[1].strengths["gamma"] == 4.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": 0.0, "steps": 1}, r"`AnnealGamma\(..., start=...\)` must be positive. Got 0.0"),
        ({"end": -1.0, "steps": 1}, r"`AnnealGamma\(..., end=...\)` must be positive. Got -1.0"),
        ({"steps": 0}, r"needs steps >= 1 and delay >= 0. Got steps=0, delay=0"),
        ({"steps": 1, "delay": -1}, r"needs steps >= 1 and delay >= 0. Got steps=1, delay=-1"),
    ],
)
def test_bad_arguments_raise(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        regmax.nn.AnnealGamma(model(), **options)


@pytest.mark.parametrize("without", [torch.nn.Linear(2, 2), regmax.nn.Softmax(learnable=True)])
def test_a_model_without_a_mapping_raises(without: torch.nn.Module) -> None:
    with pytest.raises(ValueError, match="found no mapping"):
        regmax.nn.AnnealGamma(without, steps=1)


def attention(mapping: object = "fusedmax") -> torch.nn.Module:
    torch.manual_seed(0)
    return regmax.nn.MultiheadAttention(8, 2, batch_first=True, mapping=mapping)


@pytest.mark.parametrize(
    "mapping", ["fusedmax", "sparsemax", regmax.nn.Fusedmax(lam=0.3, learnable="lam"), regmax.Oscar(0.1)]
)
def test_a_checkpoint_from_midway_gives_the_same_weights_without_an_annealer(mapping: object) -> None:
    x = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(1))
    trained, loaded = attention(mapping), attention(copy.deepcopy(mapping))
    schedule = regmax.nn.AnnealGamma(trained, start=4.0, end=0.1, steps=4)
    schedule.step()
    with torch.no_grad():
        trained.out_proj.weight.mul_(3)
    before = loaded(x, x, x)[0]
    loaded.load_state_dict(trained.state_dict(), strict=True)
    expected, got = trained(x, x, x), loaded(x, x, x)
    assert torch.equal(got[0], expected[0])
    assert torch.equal(got[1], expected[1])
    assert not torch.allclose(before, got[0])
    assert loaded.mapping.gamma == schedule.gamma
    for _ in range(3):
        schedule.step()
    loaded.load_state_dict(trained.state_dict())
    assert loaded.mapping.gamma == 0.1


def test_without_an_annealer_the_state_dict_is_torchs() -> None:
    theirs = torch.nn.MultiheadAttention(8, 2)
    assert list(attention().state_dict()) == list(theirs.state_dict())


@pytest.mark.parametrize("make", [regmax.nn.Fusedmax, regmax.nn.Oscarmax])
@pytest.mark.parametrize("learnable", [False, True])
def test_the_penalty_stays_constant(make: type, learnable: bool) -> None:
    mapping = make(lam=0.2, learnable="lam" if learnable else False)
    schedule = regmax.nn.AnnealGamma(mapping, start=4.0, end=2.0, steps=2)
    for gamma in (4.0, 3.0, 2.0):
        assert mapping.gamma == gamma
        assert float(mapping.gamma * torch.as_tensor(mapping.lam).detach()) == pytest.approx(0.4, rel=1e-5)
        schedule.step()
    assert float(torch.as_tensor(mapping.lam).detach()) == pytest.approx(0.2, rel=1e-5)
    kept = make(lam=0.2)
    regmax.nn.AnnealGamma(kept, start=4.0, steps=2, constant_penalty=False)
    assert kept.lam == 0.2


def test_the_penalty_of_a_regularizer_stays_constant() -> None:
    x = torch.randn(5, 9, generator=torch.Generator().manual_seed(2))
    mapping = regmax.nn.RegularizedArgmax(regmax.FusedLasso(lam=0.2))
    regmax.nn.AnnealGamma(mapping, start=4.0, end=1.0, steps=2)
    torch.testing.assert_close(mapping(x), regmax.fusedmax(x, lam=0.05, gamma=4.0))
    torch.testing.assert_close(mapping.resolved()(x), mapping(x))


def test_mappings_given_by_name_are_annealed() -> None:
    encoder = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(8, 2, batch_first=True), 2, enable_nested_tensor=False
    )
    regmax.replace_attention(encoder, "fusedmax,lam=0.3")
    layers = [encoder, attention("fusedmax"), attention(regmax.Oscar(0.2))]
    layers += [regmax.nn.GlobalAttention(8), regmax.nn.AdditiveAttention(8, 8, mapping="oscarmax")]
    for model in layers:
        regmax.nn.AnnealGamma(model, start=3.0, steps=2)
        gammas = {m.gamma for m in model.modules() if hasattr(m, "strengths")}
        assert gammas == {3.0}


def test_rows_without_gradient_are_reported() -> None:
    """Scores of standard deviation .1: at gamma = 4 most rows are fused whole unless the penalty is held constant."""
    scores = 0.1 * torch.randn(200, 16, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    shares = []
    for constant_penalty in (True, False):
        model = torch.nn.Sequential(regmax.nn.Fusedmax(lam=0.1))
        schedule = regmax.nn.AnnealGamma(model, start=4.0, steps=9, constant_penalty=constant_penalty)
        report = schedule.report(scores)
        shares.append(report.share)
        x = scores.clone().requires_grad_()
        v = torch.linspace(-1, 1, 16, dtype=torch.float64) ** 3
        (gradient,) = torch.autograd.grad((model(x) * v).sum(), x)
        assert report.layers == {"0": (int((gradient.abs().amax(-1) < 1e-12).sum()), 200)}
        assert report.gamma == 4.0
    assert shares[0] < 0.5 < shares[1]


def test_the_report_reads_attention_layers_too() -> None:
    model = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(8, 2, batch_first=True), 2, enable_nested_tensor=False
    )
    regmax.replace_attention(model, "fusedmax,lam=100")
    schedule = regmax.nn.AnnealGamma(model, steps=9)
    report = schedule.report(torch.randn(3, 5, 8))
    assert report.layers == {f"layers.{i}.self_attn": (30, 30) for i in range(2)}
    assert report.share == 1
