"""Attention of recurrent models: the formulas of Luong and Bahdanau, state by state."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import regmax

WIDTH, HEADS, BATCH, QUERIES, KEYS = 16, 4, 3, 5, 7


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def padding() -> Tensor:
    """True for padding."""
    mask = torch.zeros(BATCH, KEYS, dtype=torch.bool)
    mask[0, 5:], mask[1, 6] = True, True
    return mask


MAPPINGS = ("softmax", "sparsemax", "fusedmax", "oscarmax", "sqpnormmax")


def kept() -> Tensor:
    return ~padding()


@pytest.mark.parametrize("score", ["dot", "general", "concat"])
@pytest.mark.parametrize("mapping", MAPPINGS)
def test_luongs_attention_is_its_formula(score: Any, mapping: str) -> None:
    attend = regmax.nn.GlobalAttention(WIDTH, score=score, mapping=mapping)
    h, s = torch.randn(BATCH, WIDTH), torch.randn(BATCH, KEYS, WIDTH)
    state, y = attend(h, s, kept())
    for b in range(BATCH):
        x = torch.stack([_luong_score(attend, h[b], s[b, i]) for i in range(KEYS)])
        weights = getattr(regmax, mapping)(x, mask=kept()[b])
        context = sum(weights[i] * s[b, i] for i in range(KEYS))
        torch.testing.assert_close(y[b], weights, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(
            state[b], torch.tanh(attend.combine.weight @ torch.cat([context, h[b]])), rtol=1e-4, atol=1e-5
        )
    assert torch.all(y[padding()] == 0)


def _luong_score(attend: regmax.nn.GlobalAttention, h: Tensor, s: Tensor) -> Tensor:
    if attend.score == "concat":
        A = torch.cat([attend.additive.query.weight, attend.additive.memory.weight], 1)
        return (
            attend.additive.score.weight @ torch.tanh(A @ torch.cat([h, s]) + attend.additive.query.bias)
        ).squeeze()
    return h @ (s if attend.score == "dot" else attend.key.weight @ s)


def test_bahdanaus_attention_is_its_formula() -> None:
    attend = regmax.nn.AdditiveAttention(WIDTH, 6, 9, mapping="sparsemax")
    h, s = torch.randn(BATCH, QUERIES, WIDTH), torch.randn(BATCH, KEYS, 6)
    context, y = attend(h, s, kept())
    pairs = attend.additive.query(h)[:, :, None] + attend.additive.memory(s)[:, None]
    weights = regmax.sparsemax(torch.tanh(pairs) @ attend.additive.score.weight[0], mask=kept()[:, None])
    torch.testing.assert_close(y, weights)
    torch.testing.assert_close(context, weights @ s)


@pytest.mark.parametrize(
    "build", [lambda: regmax.nn.GlobalAttention(WIDTH, 6), lambda: regmax.nn.AdditiveAttention(WIDTH, 6)]
)
def test_one_step_is_one_of_many(build: Any) -> None:
    attend = build()
    h, s = torch.randn(BATCH, QUERIES, WIDTH), torch.randn(BATCH, KEYS, 6)
    out, y = attend(h, s, kept())
    for t in range(QUERIES):
        torch.testing.assert_close(attend(h[:, t], s, kept()), (out[:, t], y[:, t]))
    out.pow(2).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in attend.parameters())


def test_wrong_states_raise() -> None:
    with pytest.raises(ValueError, match=r"score=...\)` must be 'dot', 'general' or 'concat'. Got 'cosine'"):
        regmax.nn.GlobalAttention(8, score="cosine")
    with pytest.raises(ValueError, match=r"score='dot'\)` needs states of one width. Got 8 and 6"):
        regmax.nn.GlobalAttention(8, 6, score="dot")
    attend = regmax.nn.GlobalAttention(8)
    with pytest.raises(ValueError, match=r"Got \(2, 8\) and \(3, 5, 8\)"):
        attend(torch.randn(2, 8), torch.randn(3, 5, 8))
    with pytest.raises(ValueError, match=r"`mask` must be boolean of shape \(2, 5\), True = keep"):
        attend(torch.randn(2, 8), torch.randn(2, 5, 8), torch.ones(2, 4, dtype=torch.bool))
