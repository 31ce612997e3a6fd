"""`GrowLam`: structure that comes in late, alone and together with `AnnealGamma`."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import regmax

X = torch.randn(64, 16, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("mapping", [regmax.nn.Fusedmax(lam=0.6), regmax.nn.Oscarmax(lam=0.6)], ids=str)
def test_lam_grows_from_sparsemax_to_its_value(mapping: Any) -> None:
    final = mapping(X)
    schedule = regmax.nn.GrowLam(mapping, steps=4, delay=2)
    assert torch.equal(mapping(X), regmax.sparsemax(X))
    seen = []
    while not schedule.finished:
        schedule.step()
        seen.append(mapping.lam)
    assert seen == pytest.approx([0.0, 0.0, 0.15, 0.3, 0.45, 0.6])
    assert mapping.lam == 0.6
    schedule.step()
    assert torch.equal(mapping(X), final)


def test_the_penalty_is_the_factor_times_its_final_value_while_gamma_falls() -> None:
    """gamma lam = factor * end * lam at every step, in any order of the two schedules."""
    mapping = regmax.nn.Fusedmax(lam=0.5)
    anneal = regmax.nn.AnnealGamma(mapping, start=4.0, end=2.0, steps=6)
    grow = regmax.nn.GrowLam(mapping, start=0.25, steps=3, delay=1)
    for step in range(8):
        assert mapping.gamma * mapping.lam == pytest.approx(grow.factor * 2.0 * 0.5)
        for schedule in (anneal, grow) if step % 2 else (grow, anneal):
            schedule.step()
    assert (mapping.gamma, mapping.lam) == (2.0, 0.5)


def test_every_mapping_with_lam_inside_a_model_grows() -> None:
    layer = torch.nn.TransformerEncoderLayer(16, 2, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    regmax.replace_attention(model, "fusedmax,lam=0.3")
    wrapped = torch.nn.ModuleList(
        [model, regmax.nn.Sparsemax(), regmax.nn.RegularizedArgmax(regmax.Oscar(lam=0.2))]
    )
    schedule = regmax.nn.GrowLam(wrapped, steps=2)
    schedule.step()
    lams = [part.lam for part in wrapped.modules() if isinstance(part, regmax.nn.Fusedmax)]
    assert lams == [0.15, 0.15]
    assert torch.equal(wrapped[2](X), regmax.oscarmax(X, lam=0.1))


def test_a_learned_lam_grows_and_gets_its_gradient() -> None:
    mapping = regmax.nn.Fusedmax(lam=0.4, learnable="lam")
    schedule = regmax.nn.GrowLam(mapping, steps=2)
    schedule.step()
    assert float(mapping.lam.detach()) == pytest.approx(0.2)
    mapping(X)[:, 0].sum().backward()
    (raw,) = mapping.parameters()
    assert raw.grad is not None
    assert raw.grad.abs() > 0


@pytest.mark.parametrize("annealed", [False, True])
def test_a_checkpoint_gives_the_same_weights_without_a_schedule(annealed: bool) -> None:
    mapping = regmax.nn.Fusedmax(lam=0.6)
    if annealed:
        regmax.nn.AnnealGamma(mapping, start=3.0, steps=5).step()
    schedule = regmax.nn.GrowLam(mapping, steps=3)
    schedule.step()
    fresh = regmax.nn.Fusedmax(lam=0.6)
    fresh.load_state_dict(mapping.state_dict())
    assert torch.equal(fresh(X), mapping(X))
    learned = regmax.nn.Fusedmax(lam=0.6, gamma=2.0, learnable="gamma")
    regmax.nn.GrowLam(learned, start=0.5, steps=3)
    other = regmax.nn.Fusedmax(lam=0.6, gamma=1.0, learnable="gamma")
    other.load_state_dict(learned.state_dict())
    assert torch.equal(other(X), learned(X))
    again = regmax.nn.GrowLam(regmax.nn.Fusedmax(lam=0.6), steps=3)
    again.load_state_dict(schedule.state_dict())
    assert again.factor == schedule.factor


def test_rows_that_a_large_lam_fuses_whole_learn_if_lam_grows() -> None:
    """At lam = 4 every row of small scores is fused whole from the start, and no score ever gets a gradient."""

    def accuracy(grow: bool) -> float:
        torch.manual_seed(0)
        keys, labels = torch.randn(12, 8), torch.arange(12)
        query = torch.nn.Parameter(0.1 * torch.randn(12, 8))
        mapping = regmax.nn.Fusedmax(lam=4.0)
        optimizer = torch.optim.Adam([query], lr=0.1)
        schedule = regmax.nn.GrowLam(mapping, steps=150, delay=30) if grow else None
        for _ in range(200):
            loss = -(mapping(query @ keys.T)[labels, labels] + 1e-6).log().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if schedule is not None:
                schedule.step()
        y = mapping(query @ keys.T)
        return float((y[labels, labels] > 0.5).float().mean())

    assert accuracy(grow=False) == 0.0
    assert accuracy(grow=True) > 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": 1.5, "steps": 1}, r"start=...\)` must be from 0 to 1\. Got 1.5"),
        ({"steps": 0}, "needs steps >= 1 and delay >= 0. Got steps=0, delay=0"),
        ({"steps": 1, "delay": -1}, "Got steps=1, delay=-1"),
    ],
)
def test_bad_arguments_raise(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        regmax.nn.GrowLam(regmax.nn.Fusedmax(), **options)


def test_a_model_without_lam_raises() -> None:
    with pytest.raises(ValueError, match=r"no mapping of `regmax\.nn` with a lam: use fusedmax or oscarmax"):
        regmax.nn.GrowLam(regmax.nn.Sparsemax(), steps=1)
