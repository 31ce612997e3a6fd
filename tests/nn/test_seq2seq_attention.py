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


MAPPINGS = ("softmax", "sparsemax", "fusedmax", "oscarmax", "sqpnormmax", "entmax")


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


ATTENTIONS = {
    "dot": lambda: regmax.nn.GlobalAttention(WIDTH, score="dot"),
    "general": lambda: regmax.nn.GlobalAttention(WIDTH, score="general", scale=0.25),
    "concat": lambda: regmax.nn.GlobalAttention(WIDTH, score="concat", scale=0.25),
    "additive": lambda: regmax.nn.AdditiveAttention(WIDTH, WIDTH, 9),
}


@pytest.mark.parametrize("kind", ATTENTIONS)
def test_a_prepared_memory_gives_the_same_states_and_gradients(kind: str) -> None:
    attend = ATTENTIONS[kind]()
    h = torch.randn(BATCH, QUERIES, WIDTH, requires_grad=True)
    s = torch.randn(BATCH, KEYS, WIDTH, requires_grad=True)
    leaves = [h, s, *attend.parameters()]
    direct, y = attend(h, s, kept())
    prepared = attend.prepare(s, kept())
    steps = [attend(h[:, t], prepared) for t in range(QUERIES)]
    states, weights = (torch.stack(parts, 1) for parts in zip(*steps, strict=True))
    torch.testing.assert_close(weights, y)
    torch.testing.assert_close(states, direct)
    v = torch.randn_like(direct)
    torch.testing.assert_close(
        torch.autograd.grad(states, leaves, v), torch.autograd.grad(direct, leaves, v), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("kind", ["general", "concat", "additive"])
def test_the_memory_is_projected_once_for_all_steps(kind: str) -> None:
    attend = ATTENTIONS[kind]()
    projections: list[None] = []
    layer = attend.key if kind == "general" else attend.additive.memory
    layer.register_forward_hook(lambda *_: projections.append(None))
    prepared = attend.prepare(torch.randn(BATCH, KEYS, WIDTH), kept())
    for _ in range(QUERIES):
        attend(torch.randn(BATCH, WIDTH), prepared)
    assert len(projections) == 1


def test_prepared_rows_are_those_of_the_batch() -> None:
    attend = ATTENTIONS["general"]()
    h, s, index = torch.randn(4, WIDTH), torch.randn(BATCH, KEYS, WIDTH), torch.tensor([2, 0, 0, 1])
    found = attend(h, attend.prepare(s, kept()).rows(index))
    torch.testing.assert_close(found, attend(h, s[index], kept()[index]))
    assert attend.prepare(s).rows(index).mask is None


def test_values_may_differ_from_the_memory() -> None:
    attend = regmax.nn.AdditiveAttention(WIDTH, WIDTH)
    h, s, values = torch.randn(BATCH, WIDTH), torch.randn(BATCH, KEYS, WIDTH), torch.randn(BATCH, KEYS, WIDTH)
    context, y = attend(h, attend.prepare(s, kept(), values=values))
    torch.testing.assert_close(y, attend(h, s, kept())[1])
    torch.testing.assert_close(context, torch.einsum("bi,bij->bj", y, values))


@pytest.mark.parametrize("score", ["dot", "general", "concat"])
def test_scores_are_scaled_and_mapped_to_the_weights(score: Any) -> None:
    attend = regmax.nn.GlobalAttention(WIDTH, score=score, mapping="sparsemax", scale=0.25)
    h, s = torch.randn(BATCH, WIDTH), torch.randn(BATCH, KEYS, WIDTH)
    state, y, x = attend.with_scores(h, s, kept())
    torch.testing.assert_close(x[1, 2], 0.25 * _luong_score(attend, h[1], s[1, 2]))
    torch.testing.assert_close(y, regmax.sparsemax(x, mask=kept()))
    torch.testing.assert_close((state, y), attend(h, s, kept()))
    assert "scale=0.25" in repr(attend)


def test_concat_without_a_bias_has_none() -> None:
    attend = regmax.nn.GlobalAttention(WIDTH, score="concat", bias=False)
    assert not any("bias" in name for name, _ in attend.named_parameters())


def test_a_prepared_memory_has_its_mask() -> None:
    attend = regmax.nn.GlobalAttention(8)
    prepared = attend.prepare(torch.randn(2, 5, 8))
    with pytest.raises(
        ValueError, match=r"`GlobalAttention\(query, memory, mask\)` takes no mask with a prepared"
    ):
        attend(torch.randn(2, 8), prepared, torch.ones(2, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"Got \(3, 8\) and \(2, 5, 8\)"):
        attend(torch.randn(3, 8), prepared)
    with pytest.raises(ValueError, match=r"must be shaped like the memory, \(2, 5, 8\). Got \(2, 4, 8\)"):
        attend.prepare(torch.randn(2, 5, 8), values=torch.randn(2, 4, 8))
    with pytest.raises(ValueError, match=r"needs a memory \(batch, d, width\). Got \(5, 8\)"):
        attend.prepare(torch.randn(5, 8))


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
