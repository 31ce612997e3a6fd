"""The mappings as modules, and learnable strengths within their bounds."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from table import TABLE, Entry

import regmax

STRENGTHS = {
    "softmax": ("gamma",),
    "sparsemax": ("gamma",),
    "fusedmax": ("lam", "gamma"),
    "oscarmax": ("lam", "gamma"),
    "sqpnormmax": ("p", "gamma"),
    "entmax": ("alpha", "gamma"),
}
LEARNABLE = [(mapping, name) for mapping, names in STRENGTHS.items() for name in names]
HEADS = 3


def module(mapping: str, *args: Any, **options: Any) -> Any:
    return getattr(regmax.nn, mapping.capitalize())(*args, **options)


def scores(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("entry", TABLE, ids=str)
@pytest.mark.parametrize("dim", [-1, 1])
def test_a_module_is_its_function(entry: Entry, dim: int) -> None:
    x, mask = scores(2, 5, 4), scores(2, 5, 4) > -1
    twin = module(entry.mapping, dim, gamma=0.7, **entry.parameters)
    assert torch.equal(twin(x), entry(x, dim, gamma=0.7))
    assert torch.equal(twin(x, mask), entry(x, dim, gamma=0.7, mask=mask))
    general = regmax.nn.RegularizedArgmax(entry.omega, dim, gamma=0.7)
    assert torch.equal(general(x, mask), twin(x, mask))


def test_defaults_are_the_functions() -> None:
    x = scores(4, 6)
    for mapping in STRENGTHS:
        assert torch.equal(module(mapping)(x), getattr(regmax, mapping)(x))


@pytest.mark.parametrize(("mapping", "name"), LEARNABLE)
def test_a_learnable_strength_starts_where_it_is_told(mapping: str, name: str) -> None:
    for start in (1.25, 1.75) if name in ("p", "alpha") else (1e-3, 0.1, 3.0):
        twin = module(mapping, **{name: start}, learnable=name)
        assert float(twin.strengths[name].detach()) == pytest.approx(start, rel=1e-4)
        assert [n for n, _ in twin.named_parameters()] == [f"strengths.raw_{name}"]


@pytest.mark.parametrize(("mapping", "name"), LEARNABLE)
@pytest.mark.parametrize("direction", [-1.0, 1.0])
def test_no_step_leaves_the_bounds(mapping: str, name: str, direction: float) -> None:
    twin, x = module(mapping, learnable=name), scores(4, 6)
    optimizer = torch.optim.SGD(twin.parameters(), lr=1e3)
    for _ in range(5):
        optimizer.zero_grad()
        (direction * twin.strengths[name]).backward()
        optimizer.step()
        strength = float(twin.strengths[name].detach())
        assert (1 < strength <= 2) if name == "p" else strength > 0
        y = twin(x)
        assert torch.isfinite(y).all()
        torch.testing.assert_close(y.sum(-1), torch.ones(4))


@pytest.mark.parametrize(("mapping", "name"), LEARNABLE)
def test_gradients_flow_to_the_strength_and_the_scores(mapping: str, name: str) -> None:
    twin, x = module(mapping, learnable=name).double(), 0.5 * scores(8, 6).double()
    x.requires_grad_()
    (twin(x) * torch.arange(6.0)).sum().backward()
    (raw,) = twin.parameters()
    assert raw.grad.abs() > 1e-6
    assert x.grad.abs().sum() > 0
    # The same by finite differences of the module.
    step = 1e-6
    values = []
    for sign in (1, -1):
        moved = copy.deepcopy(twin)
        with torch.no_grad():
            next(moved.parameters()).add_(sign * step)
            values.append((moved(x) * torch.arange(6.0)).sum())
    torch.testing.assert_close(raw.grad, (values[0] - values[1]) / (2 * step), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("mapping", STRENGTHS)
def test_one_strength_per_head(mapping: str) -> None:
    x = scores(2, HEADS, 4, 6)
    for name in STRENGTHS[mapping]:
        values = torch.linspace(1.2, 1.8, HEADS).reshape(HEADS, 1, 1)
        learned, fixed = (module(mapping, **{name: values}, learnable=learn) for learn in (name, False))
        torch.testing.assert_close(learned(x), fixed(x), rtol=1e-4, atol=1e-5)
        for head in range(HEADS):
            alone = module(mapping, **{name: float(values[head])})(x[:, head])
            torch.testing.assert_close(fixed(x)[:, head], alone, rtol=1e-5, atol=1e-6)
        learned(x).pow(2).sum().backward()
        assert next(learned.parameters()).grad.shape == (HEADS, 1, 1)


@pytest.mark.parametrize("mapping", STRENGTHS)
@pytest.mark.parametrize("learnable", [True, False])
def test_the_state_dict_round_trips(mapping: str, learnable: bool) -> None:
    x = scores(HEADS, 4, 6)
    starts = {"lam": 0.05, "gamma": 1.3, "p": 1.3, "alpha": 1.3}
    values = {name: torch.full((HEADS, 1, 1), starts[name]) for name in STRENGTHS[mapping]}
    twin = module(mapping, **values, learnable=learnable)
    file = io.BytesIO()
    torch.save(twin.state_dict(), file)
    file.seek(0)
    other = module(mapping, **{name: 1.1 * value for name, value in values.items()}, learnable=learnable)
    assert not torch.equal(other(x), twin(x))
    other.load_state_dict(torch.load(file), strict=True)
    assert torch.equal(other(x), twin(x))


def test_tensors_move_with_the_module() -> None:
    twin = regmax.nn.Fusedmax(
        lam=torch.full((HEADS, 1, 1), 0.1), gamma=torch.tensor(2.0), learnable="lam"
    ).double()
    assert {name: value.dtype for name, value in twin.strengths.current().items()} == {
        "lam": torch.float64,
        "gamma": torch.float64,
    }
    assert twin(scores(HEADS, 2, 5).double()).dtype == torch.float64


def test_a_module_shows_its_strengths_as_they_are() -> None:
    twin = regmax.nn.Fusedmax(dim=1, lam=torch.full((HEADS, 1), 0.1), gamma=2.0, learnable="gamma")
    assert (
        repr(twin)
        == "Fusedmax(\n  dim=1\n  (strengths): Strengths(lam=0.1 to 0.1 in (3, 1), gamma=2 (learned))\n)"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learnable": "p"}, r"`learnable` must name some of lam, gamma\. Got 'p'"),
        ({"learnable": "lam", "lam": 0.0}, r"A learnable `lam` must start above 1e-06\. Got 0\.0"),
        ({"learnable": True, "gamma": -1.0}, r"A learnable `gamma` must start above 1e-06\. Got -1\.0"),
    ],
)
def test_wrong_strengths_raise(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        regmax.nn.Fusedmax(**options)


@pytest.mark.parametrize("p", [0.9, 1.0, 2.1])
def test_a_learnable_p_must_start_inside(p: float) -> None:
    with pytest.raises(ValueError, match=r"A learnable `p` must start above 1\.001 and at most 2"):
        regmax.nn.Sqpnormmax(p=p, learnable="p")
    assert float(regmax.nn.Sqpnormmax(p=2.0, learnable="p").strengths["p"].detach()) == pytest.approx(
        2.0, abs=1e-5
    )


def test_annealing_reaches_every_fixed_gamma_in_a_model_and_resumes() -> None:
    def build() -> tuple[torch.nn.Module, regmax.nn.AnnealGamma]:
        model = torch.nn.ModuleList(
            [regmax.nn.Sparsemax(), regmax.nn.Fusedmax(), regmax.nn.Softmax(learnable=True)]
        )
        return model, regmax.nn.AnnealGamma(model, start=5.0, end=1.0, steps=4, delay=1)

    model, schedule = build()
    gammas = []
    for _ in range(7):
        gammas.append(model[0].strengths["gamma"])
        assert model[1].strengths["gamma"] == gammas[-1]
        assert float(model[2].strengths["gamma"].detach()) == pytest.approx(1.0)
        schedule.step()
    assert gammas == [5.0, 5.0, 4.0, 3.0, 2.0, 1.0, 1.0]
    again, resumed = build()
    resumed.load_state_dict({"done": 3})
    assert again[0].strengths["gamma"] == 3.0


def test_strengths_are_read_from_the_module() -> None:
    assert (regmax.nn.Fusedmax(lam=0.3, gamma=2.0).lam, regmax.nn.Fusedmax(gamma=2.0).gamma) == (0.3, 2.0)
    assert regmax.nn.Sqpnormmax(p=1.3).p == 1.3
    learned = regmax.nn.Oscarmax(lam=0.25, learnable="lam")
    assert learned.lam.item() == pytest.approx(0.25, rel=1e-5)
    assert learned.lam.requires_grad
    assert "lam=0.25 (learned), gamma=1" in repr(learned)
    heads = regmax.nn.Fusedmax(lam=torch.linspace(0.1, 0.4, 4).reshape(4, 1, 1))
    assert "lam=0.1 to 0.4 in (4, 1, 1)" in repr(heads)
    with pytest.raises(AttributeError, match="lam"):
        regmax.nn.Sparsemax().lam  # noqa: B018
