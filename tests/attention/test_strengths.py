"""Strengths in fused attention: numbers, tensors, one per head or query, learned; the gradients are the dense ones."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from attention_reference import compose, draw, gradients, make_mask, regular_rows, relative_error
from torch import Tensor

import regmax
from regmax.resolver import Resolved, resolve

OMEGAS: dict[str, Any] = {
    "sparsemax": lambda _: regmax.SquaredNorm(),
    "fusedmax": lambda t: regmax.FusedLasso(lam=0.05 + 0.2 * t),
    "fusedmax-strong": lambda t: regmax.FusedLasso(lam=1 + t),  # not for the lane tier
    "oscarmax": lambda t: regmax.Oscar(lam=0.005 + 0.05 * t),
    "sqpnormmax": lambda t: regmax.SquaredPNorm(p=1.2 + 0.6 * t),
    "entmax": lambda t: regmax.NegativeTsallisEntropy(alpha=1.1 + 0.8 * t),
}
SHAPES = {"scalar": (), "head": (4, 1, 1), "batch": (2, 1, 1, 1), "query": (4, 33, 1), "all": (2, 4, 33, 1)}


def strengths(shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Two tensors in (0, 1) that require gradients: for theta, and for gamma."""
    generator = torch.Generator().manual_seed(5)
    made = (torch.rand(shape, generator=generator, dtype=torch.float64).to(dtype) for _ in range(2))
    theta, gamma = (x.requires_grad_() for x in made)
    return theta, gamma


def mapping_of(name: str, theta: Any, gamma: Any) -> Resolved:
    return Resolved(OMEGAS[name](theta), 0.5 + gamma)


@pytest.mark.pairs
@pytest.mark.parametrize("name", OMEGAS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("mask_kind", ["none", "right", "left", "rows"])
def test_learned_strengths_have_the_dense_gradients(
    name: str, shape: tuple[int, ...], mask_kind: str, fused_calls: list[str]
) -> None:
    theta, gamma = strengths(shape)
    options: dict[str, Any] = {"mask": make_mask(mask_kind, 33, 47), "is_causal": mask_kind == "rows"}
    for spread in (0.02, 1.0, 4.0):
        inputs = draw(spread=spread, dtype=torch.float64)
        learned = (*inputs, gamma, *(() if name == "sparsemax" else (theta,)))
        out = regmax.attention(*inputs, mapping=mapping_of(name, theta, gamma), **options)
        wanted, _ = compose(*inputs, mapping_of(name, theta, gamma), **options)
        assert relative_error(out, wanted) < 1e-11
        for found, grad in zip(gradients(out, learned), gradients(wanted, learned), strict=True):
            assert relative_error(found, grad) < 1e-9, (spread, tuple(grad.shape))
    assert len(fused_calls) == 3


@pytest.mark.parametrize("name", OMEGAS)
def test_learned_strengths_in_single_precision(name: str, fused_calls: list[str]) -> None:
    theta, gamma = strengths((4, 1, 1), torch.float32)
    inputs = draw(spread=2.0, queries=70, keys=200, e=16, e_v=16)
    mapping = mapping_of(name, theta, gamma)
    learned = (gamma,) if name == "sparsemax" else (gamma, theta)
    out, weights = regmax.attention(*inputs, mapping=mapping, return_weights="sparse")
    double = [x.double() for x in inputs]
    wanted, y = compose(*double, mapping_of(name, theta.double(), gamma.double()))  # type: ignore[misc]
    regular = regular_rows(weights.to_dense(), y)
    pairs = gradients(out, learned, regular), gradients(wanted, learned, regular)
    for found, grad in zip(*pairs, strict=True):
        assert relative_error(found, grad) < 2e-4
    assert found.dtype == torch.float32
    assert len(fused_calls) == 1


def test_lam_counts_the_neighbours_that_a_bias_deletes_or_an_end_lacks(fused_calls: list[str]) -> None:
    bias = torch.zeros(33, 47, dtype=torch.float64)
    bias[:, 5:9] = -torch.inf
    bias[:, -3:] = -torch.inf
    bias[::2, :4] += 1.0
    theta, gamma = strengths((4, 1, 1))
    for spread in (0.02, 1.0, 4.0):
        inputs = draw(spread=spread, dtype=torch.float64)
        for name in OMEGAS:
            out = regmax.attention(*inputs, mapping=mapping_of(name, theta, gamma), bias=bias)
            wanted, _ = compose(*inputs, mapping_of(name, theta, gamma), bias=bias)
            assert relative_error(out, wanted) < 1e-11
            learned = (gamma,) if name == "sparsemax" else (gamma, theta)
            for found, grad in zip(gradients(out, learned), gradients(wanted, learned), strict=True):
                assert relative_error(found, grad) < 1e-9, (spread, name)
    assert len(fused_calls) == 3 * len(OMEGAS)


@pytest.mark.parametrize("name", OMEGAS)
def test_gradients_of_everything_pass_gradcheck(name: str, fused_calls: list[str]) -> None:
    q, k, v = draw(batch=(), heads=2, queries=9, keys=11, e=3, e_v=2, dtype=torch.float64)
    theta, gamma = strengths((2, 1, 1))
    bias = torch.randn(1, 9, 11, dtype=torch.float64, requires_grad=True)

    def run(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, theta: Tensor, gamma: Tensor) -> Any:
        mapping = mapping_of(name, theta, gamma)
        return regmax.attention(q, k, v, mapping=mapping, bias=bias, return_weights=True)

    assert torch.autograd.gradcheck(run, (q, k, v, bias, theta, gamma), fast_mode=True)
    assert fused_calls


def test_alpha_of_entmax_down_to_softmax(fused_calls: list[str]) -> None:
    alpha = torch.tensor([1.0, 1.0 + 1e-7, 1.001, 1.5], dtype=torch.float64).reshape(4, 1, 1).requires_grad_()
    inputs = draw(dtype=torch.float64)
    out = regmax.attention(*inputs, mapping=regmax.NegativeTsallisEntropy(alpha=alpha))
    wanted, _ = compose(*inputs, regmax.NegativeTsallisEntropy(alpha=alpha))
    for found, grad in zip(
        gradients(out, (*inputs, alpha)), gradients(wanted, (*inputs, alpha)), strict=True
    ):
        assert relative_error(found, grad) < 1e-8
    assert fused_calls == ["entmax"]


@pytest.mark.parametrize("name", ["sparsemax", "fusedmax", "oscarmax", "sqpnormmax"])
def test_second_derivatives_of_everything(name: str, fused_calls: list[str]) -> None:
    q, k, v = draw(batch=(), heads=2, queries=3, keys=5, e=3, e_v=2, dtype=torch.float64)
    theta, gamma = strengths((2, 1, 1))
    bias = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)

    def run(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, theta: Tensor, gamma: Tensor) -> Any:
        return regmax.attention(
            q, k, v, mapping=mapping_of(name, theta, gamma), bias=bias, return_weights=True
        )

    assert torch.autograd.gradgradcheck(run, (q, k, v, bias, theta, gamma))
    assert fused_calls


def test_strengths_that_are_not_learned_may_be_tensors(fused_calls: list[str]) -> None:
    inputs = draw(dtype=torch.float64)
    lam = torch.tensor([0.0, 0.1, 0.5, 2.0], dtype=torch.float64).reshape(4, 1, 1)
    out = regmax.attention(*inputs, mapping=regmax.FusedLasso(lam=lam))
    for head, each in enumerate(lam.flatten().tolist()):
        part = [x[:, head] for x in inputs]
        wanted = regmax.attention(*part, mapping=regmax.FusedLasso(lam=each))
        assert torch.allclose(out[:, head], wanted, atol=1e-13)
    # A shape of rows, without the keys, is one strength per query.
    p = torch.linspace(1.1, 2.0, 33, dtype=torch.float64)
    rows = regmax.attention(*inputs, mapping=regmax.SquaredPNorm(p=p))
    assert torch.allclose(rows, compose(*inputs, regmax.SquaredPNorm(p=p[:, None]))[0], atol=1e-11)
    assert len(fused_calls) == 6


@pytest.mark.parametrize(
    "kind", ["string", "regularizer", "module", "annealed", "function", "partial", "argmax"]
)
def test_every_form_of_a_mapping_is_the_same_fused_call(kind: str, fused_calls: list[str]) -> None:
    annealed = regmax.nn.Fusedmax(lam=0.2)
    regmax.nn.AnnealGamma(annealed, start=2.0, end=1.0, steps=1)
    forms = {
        "string": "fusedmax,lam=0.1,gamma=2",
        "regularizer": regmax.FusedLasso(lam=0.1),
        "module": regmax.nn.Fusedmax(lam=0.1, gamma=2.0),
        "annealed": annealed,
        "function": regmax.fusedmax,
        "partial": partial(regmax.fusedmax, lam=0.1, gamma=2.0),
        "argmax": partial(regmax.regularized_argmax, regmax.FusedLasso(lam=0.1), gamma=2.0),
    }
    inputs = draw()
    out = regmax.attention(*inputs, mapping=forms[kind])
    scale = 8**-0.5 / (1 if kind in ("regularizer", "function") else 2)
    wanted = regmax.attention(*inputs, mapping="fusedmax,lam=0.1", scale=scale)
    assert torch.allclose(out, wanted, atol=1e-6)
    assert fused_calls == ["fusedmax", "fusedmax"]


@pytest.mark.parametrize("name", ["Sparsemax", "Fusedmax", "Oscarmax", "Sqpnormmax", "Entmax"])
def test_learnable_modules_are_fused(name: str, fused_calls: list[str]) -> None:
    module = getattr(regmax.nn, name)(learnable=True).double()
    inputs = draw(dtype=torch.float64)
    out = regmax.attention(*inputs, mapping=module)
    wanted, _ = compose(*inputs, resolve(module))
    learned = tuple(module.parameters())
    assert learned
    for found, grad in zip(gradients(out, learned), gradients(wanted, learned), strict=True):
        assert relative_error(found, grad) < 1e-9
    assert len(fused_calls) == 1


@pytest.mark.parametrize("gamma", [1e-36, 1e-9, 1e30])
def test_an_extreme_gamma_deletes_no_key(gamma: float, fused_calls: list[str]) -> None:
    q, k, v = draw(dtype=torch.float64)
    bias = torch.full((47,), -1e300, dtype=torch.float64)
    bias[3:6] = 0
    for options in ({}, {"bias": bias}):
        found = Resolved(regmax.FusedLasso(lam=0.1), gamma)
        out, y = regmax.attention(q, k, v, mapping=found, return_weights=True, **options)
        wanted, dense = compose(q, k, v, found, **options)
        assert torch.allclose(out, wanted, atol=1e-9)
        assert torch.equal(y != 0, dense != 0)
    assert len(fused_calls) == 2


@pytest.mark.parametrize(
    ("mapping", "error", "match"),
    [
        (partial(regmax.fusedmax, gamma=-1.0), ValueError, "gamma` must be positive"),
        (partial(regmax.fusedmax, gamma=torch.tensor([[[-1.0]]])), ValueError, "gamma` must be positive"),
        (regmax.FusedLasso(lam=torch.tensor(-0.1)), ValueError, "must be non-negative"),
        (regmax.FusedLasso(lam=torch.ones(33, 47)), ValueError, "must broadcast against the scores"),
    ],
)
def test_bad_strengths_are_named(mapping: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        regmax.attention(*draw(), mapping=mapping)
