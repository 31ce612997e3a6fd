"""One resolver: a name, a regularizer, a module, a partial and a callable mean the same everywhere."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regmax
from regmax.cli import main
from regmax.experiments.config import make
from regmax.experiments.errors import ExperimentError
from regmax.nn.mappings import module
from regmax.plots import Setting
from regmax.resolver import Resolved, resolve

EXPECTED = Resolved(regmax.FusedLasso(0.2), 2.0)
SAME: dict[str, Any] = {
    "name": "fusedmax,lam=0.2,gamma=2",
    "partial": partial(regmax.fusedmax, lam=0.2, gamma=2.0),
    "partial of the framework": partial(regmax.regularized_argmax, regmax.FusedLasso(0.2), gamma=2.0),
    "module": regmax.nn.Fusedmax(lam=0.2, gamma=2.0),
    "module of a regularizer": regmax.nn.RegularizedArgmax(regmax.FusedLasso(0.2), gamma=2.0),
    "resolved": EXPECTED,
}


@pytest.mark.parametrize("mapping", SAME.values(), ids=SAME)
def test_every_way_to_say_it_gives_the_regularizer_and_gamma(mapping: Any) -> None:
    assert resolve(mapping) == EXPECTED
    x = np.random.default_rng(0).normal(size=(3, 5))
    np.testing.assert_array_equal(resolve(mapping)(x), regmax.fusedmax(x, lam=0.2, gamma=2.0))


def test_a_bare_name_function_and_regularizer_are_the_defaults() -> None:
    for mapping in (
        "fusedmax",
        regmax.fusedmax,
        regmax.FusedLasso(),
        regmax.nn.Fusedmax(),
        module("fusedmax"),
    ):
        assert resolve(mapping) == Resolved(regmax.FusedLasso(0.1), 1.0)


def test_a_modules_strengths_are_read_when_it_is_resolved() -> None:
    fusedmax = regmax.nn.Fusedmax(learnable="lam")
    before = resolve(fusedmax).omega
    assert isinstance(before, regmax.FusedLasso)
    assert before.lam.requires_grad
    with torch.no_grad():
        fusedmax.strengths.raw_lam += 1.0
    after = resolve(fusedmax).omega
    assert isinstance(after, regmax.FusedLasso)
    assert after.lam > before.lam


def test_other_callables_get_dense_scores_and_a_mask_only_if_there_is_one() -> None:
    calls: list[dict[str, Any]] = []

    def uniform(scores: torch.Tensor, dim: int, **options: Any) -> torch.Tensor:
        calls.append({"dim": dim, **options})
        return torch.full_like(scores, 1 / scores.shape[dim])

    x = torch.zeros(2, 4)
    resolve(uniform)(x)
    keep = torch.ones(2, 4, dtype=torch.bool)
    resolve(uniform)(x, mask=keep)
    assert calls == [{"dim": -1}, {"dim": -1, "mask": keep}]
    assert resolve(uniform).omega is None
    y = resolve(torch.nn.Softmax(dim=-1))(x)
    assert torch.equal(y, torch.full((2, 4), 0.25))


@pytest.mark.parametrize("mapping", [3, None, [0.1]], ids=["int", "None", "list"])
def test_what_stands_for_no_mapping_raises(mapping: Any) -> None:
    with pytest.raises(
        TypeError, match=r"`mapping` must be a name, a regularizer, a module or a callable\. Got"
    ):
        resolve(mapping)


def attend(mapping: Any) -> Any:
    return regmax.attention(*torch.randn(3, 2, 9, 4), mapping=mapping)


def layer() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.MultiheadAttention(8, 2))


def register(mapping: str) -> Any:
    return regmax.integrations.transformers.register(mapping)


PLACES: dict[str, Any] = {
    "attention": attend,
    "MultiheadAttention": lambda mapping: regmax.nn.MultiheadAttention(8, 2, mapping=mapping),
    "GlobalAttention": lambda mapping: regmax.nn.GlobalAttention(8, mapping=mapping),
    "AdditiveAttention": lambda mapping: regmax.nn.AdditiveAttention(8, 8, mapping=mapping),
    "replace_attention": lambda mapping: regmax.replace_attention(layer(), mapping),
    "transformers": register,
    "plots": Setting.parse,
    "experiments": lambda mapping: make("translation", "small", {"mapping": mapping}),
    "regularized_argmax": lambda mapping: regmax.regularized_argmax(mapping, np.zeros(3)),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_name_with_strengths_is_a_name_everywhere(place: str) -> None:
    PLACES[place]("fusedmax,lam=0.2")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ("fusdmax", r"`mapping` must be one of .* Got 'fusdmax': did you mean fusedmax\?$"),
        ("fusedmax,lam=nan", r"`fusedmax\(..., lam=...\)` must be non-negative and finite\. Got nan\.$"),
        ("fusedmax,lam=-1", r"`fusedmax\(..., lam=...\)` must be non-negative and finite\. Got -1\.0\.$"),
        ("sqpnormmax,p=3", r"`sqpnormmax\(..., p=...\)` must be in \(1, 2\]\. Got 3\.0\.$"),
        ("fusedmax,p=2", r"`fusedmax` has the strengths gamma, lam\. Got 'p=2' in 'fusedmax,p=2'\.$"),
    ],
)
def test_a_bad_name_raises_everywhere_where_it_is_given(place: str, mapping: str, message: str) -> None:
    error = ExperimentError if place == "experiments" else ValueError
    with pytest.raises(error, match=message):
        PLACES[place](mapping)


def test_a_run_takes_its_strengths_from_the_name() -> None:
    config = make("translation", "small", {"mapping": "fusedmax,lam=0.3,gamma=0.5"})
    assert (config.mapping, config.lam, config.gamma) == ("fusedmax", 0.3, 0.5)
    with pytest.raises(ExperimentError, match="`lam` must be given once"):
        make("translation", "small", {"mapping": "fusedmax,lam=0.3", "lam": 0.1})


@pytest.mark.parametrize("command", [["explore", "--out", "page.html"], ["plot", "scores.json"]])
def test_a_command_answers_a_bad_mapping_in_one_line(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*command, "--mapping", "fusedmax,lam=nan"]) != 0
    assert "`fusedmax(..., lam=...)` must be non-negative and finite. Got nan.\n" in capsys.readouterr().err


def test_torchs_name_of_the_mask_is_answered_with_ours() -> None:
    q = torch.randn(2, 9, 4)
    with pytest.raises(
        TypeError,
        match=r"`attention\(q, k, v\)` takes no `attn_mask`: .* as `mask`, True = keep, .* as `bias`\.$",
    ):
        regmax.attention(q, q, q, attn_mask=torch.ones(9, 9, dtype=torch.bool))  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"`attention\(q, k, v\)` takes no argument 'masks'\.$"):
        regmax.attention(q, q, q, masks=None)  # type: ignore[call-overload]


def test_regularizers_with_arrays_compare_and_hash() -> None:
    one, same, other = (regmax.FusedLasso(torch.tensor([0.1, x])) for x in (0.2, 0.2, 0.3))
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert regmax.FusedLasso(np.array([0.1])) != regmax.FusedLasso(torch.tensor([0.1]))
    assert regmax.FusedLasso(np.float64(0.1)) == regmax.FusedLasso(0.1)
    assert hash(regmax.FusedLasso(np.float64(0.1))) == hash(regmax.FusedLasso(0.1))
    assert regmax.FusedLasso(torch.tensor([0.1])) != regmax.FusedLasso(0.1)
    assert regmax.Oscar(0.1) != regmax.OscarComposition(0.1)
    assert regmax.FusedLasso(torch.ones(2)) != regmax.FusedLasso(torch.ones(3))


def test_a_composition_is_computed_by_its_steps_and_judged_by_its_exact_regularizer() -> None:
    omega = regmax.OscarComposition(0.1)
    assert omega.exact == regmax.Oscar(0.1)
    assert regmax.FusedLasso(0.1).exact == regmax.FusedLasso(0.1)
    q, k, v = torch.randn(3, 1, 16, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    out, y = regmax.attention(q, k, v, mapping=omega, return_weights=True)
    expected = regmax.regularized_argmax(omega, q @ k.mT / 8**0.5)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(regmax.attention(q, k, v, mapping=omega), out)
