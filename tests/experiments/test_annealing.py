"""gamma is lowered in any training loop, from dense to sparse."""

from __future__ import annotations

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
