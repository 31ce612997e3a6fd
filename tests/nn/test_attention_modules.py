"""Multi-head attention equals torch's with softmax, and the composition of its parts with another mapping."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import regmax

WIDTH, HEADS, BATCH, QUERIES, KEYS = 16, 4, 3, 9, 11  # long enough for the sparse kernels
MAPPINGS = ("softmax", "sparsemax", "fusedmax", "oscarmax", "sqpnormmax", "entmax")
SPARSE = MAPPINGS[1:]
EVERY_MAPPING = pytest.mark.parametrize("mapping", MAPPINGS)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def pair(
    mapping: Any = "softmax", **options: Any
) -> tuple[nn.MultiheadAttention, regmax.nn.MultiheadAttention]:
    """torch's module and ours, with the same weights."""
    theirs = nn.MultiheadAttention(WIDTH, HEADS, **options)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.4)  # torch's biases start at 0, which would hide errors
    ours = regmax.nn.MultiheadAttention(WIDTH, HEADS, **options, mapping=mapping)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    return theirs, ours


def sequences(options: dict[str, Any], unbatched: bool = False) -> list[Tensor]:
    widths = (WIDTH, options.get("kdim") or WIDTH, options.get("vdim") or WIDTH)
    lengths = (QUERIES, KEYS, KEYS)
    xs = [torch.randn(BATCH, n, width) for n, width in zip(lengths, widths, strict=True)]
    if unbatched:
        return [x[0] for x in xs]
    return xs if options.get("batch_first") else [x.transpose(0, 1) for x in xs]


def padding() -> Tensor:
    mask = torch.zeros(BATCH, KEYS, dtype=torch.bool)
    mask[0, 8:], mask[1, 0] = True, True  # no fully masked row: torch gives NaN for it
    return mask


CONSTRUCTORS = [
    dict(
        zip(
            ("batch_first", "add_bias_kv", "add_zero_attn", "bias", "kdim", "vdim"),
            (*flags, *widths),
            strict=True,
        )
    )
    for flags in itertools.product([False, True], repeat=4)
    for widths in ((None, None), (6, 10))
]
MASKS: dict[str, Any] = {
    "none": dict,
    "padding": lambda: {"key_padding_mask": padding()},
    "float padding": lambda: {"key_padding_mask": torch.randn(BATCH, KEYS)},
    "places": lambda: {"attn_mask": torch.ones(QUERIES, KEYS).triu(2).bool()},
    "heads": lambda: {"attn_mask": torch.rand(BATCH * HEADS, QUERIES, KEYS) < 0.3},
    "bias": lambda: {"attn_mask": torch.randn(QUERIES, KEYS)},
    "head biases": lambda: {"attn_mask": torch.randn(BATCH * HEADS, QUERIES, KEYS)},
    "-inf": lambda: {
        "attn_mask": torch.zeros(QUERIES, KEYS).masked_fill(
            torch.ones(QUERIES, KEYS).triu(2).bool(), -torch.inf
        )
    },
    "both": lambda: {"key_padding_mask": padding(), "attn_mask": torch.ones(QUERIES, KEYS).triu(3).bool()},
    "both float": lambda: {
        "key_padding_mask": torch.randn(BATCH, KEYS),
        "attn_mask": torch.randn(QUERIES, KEYS),
    },
    "causal": lambda: {"attn_mask": torch.ones(QUERIES, KEYS).triu(1).bool(), "is_causal": True},
    "causal padding": lambda: {
        "attn_mask": torch.ones(QUERIES, KEYS).triu(1).bool(),
        "is_causal": True,
        "key_padding_mask": padding().roll(4, 1),
    },
}


@pytest.mark.parametrize("masks", MASKS)
def test_with_softmax_it_is_torchs(masks: str) -> None:
    for options in CONSTRUCTORS:
        theirs, ours = pair(**options)
        xs = sequences(options)
        for weights in ({"need_weights": False}, {}, {"average_attn_weights": False}):
            if (
                "need_weights" in weights
                and masks == "causal"
                and (options["add_bias_kv"] or options["add_zero_attn"])
            ):
                continue  # here torch's causal mask hides the appended keys, but its weights show them
            call = {**MASKS[masks](), **weights}
            torch.testing.assert_close(ours(*xs, **call), theirs(*xs, **call), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch_first", [False, True])
def test_unbatched_sequences(batch_first: bool) -> None:
    theirs, ours = pair(batch_first=batch_first)
    xs = sequences({}, unbatched=True)
    for call in (
        {},
        {"average_attn_weights": False},
        {"key_padding_mask": padding()[0]},
        {"attn_mask": torch.rand(HEADS, QUERIES, KEYS) < 0.3},
    ):
        torch.testing.assert_close(ours(*xs, **call), theirs(*xs, **call), rtol=1e-4, atol=1e-5)


def test_gradients_are_torchs() -> None:
    theirs, ours = pair(batch_first=True, add_bias_kv=True)
    x = torch.randn(BATCH, KEYS, WIDTH)
    gradients = []
    for module in (theirs, ours):
        module(x, x, x, key_padding_mask=padding())[0].pow(2).sum().backward()
        gradients.append({name: p.grad for name, p in module.named_parameters()})
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)


@EVERY_MAPPING
def test_it_is_the_composition_of_its_parts(mapping: str) -> None:
    _, ours = pair(mapping, batch_first=True)
    x, mask = torch.randn(BATCH, KEYS, WIDTH), padding()
    q, k, v = (
        part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
        for part in functional.linear(x, ours.in_proj_weight, ours.in_proj_bias).chunk(3, -1)
    )
    y = getattr(regmax, mapping)(q @ k.mT / 2, mask=~mask[:, None, None])
    expected = ours.out_proj((y @ v).transpose(1, 2).flatten(-2))
    out, weights = ours(x, x, x, key_padding_mask=mask, average_attn_weights=False)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(weights, y, rtol=1e-4, atol=1e-5)
    out, _ = ours(x, x, x, key_padding_mask=mask, need_weights=False)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)


@EVERY_MAPPING
def test_a_query_that_may_look_nowhere_gets_the_output_bias(mapping: str) -> None:
    _, ours = pair(mapping, batch_first=True)
    x = torch.randn(BATCH, KEYS, WIDTH, requires_grad=True)
    mask = torch.zeros(BATCH, KEYS, dtype=torch.bool)
    mask[1] = True
    for need_weights in (False, True):
        out, _ = ours(x, x, x, key_padding_mask=mask, need_weights=need_weights)
        torch.testing.assert_close(out[1], ours.out_proj.bias.expand(KEYS, -1))
        (gradient,) = torch.autograd.grad(out.pow(2).sum(), x)
        assert torch.isfinite(gradient).all()
        assert torch.all(gradient[1] == 0)


def test_causality_needs_no_mask_and_reaches_appended_keys() -> None:
    _, ours = pair("fusedmax", batch_first=True, add_bias_kv=True, add_zero_attn=True)
    x, causal = torch.randn(BATCH, KEYS, WIDTH), torch.ones(KEYS, KEYS).triu(1).bool()
    expected = ours(x, x, x, attn_mask=causal)
    torch.testing.assert_close(ours(x, x, x, is_causal=True), expected)
    assert torch.any(expected[1][:, 0, KEYS:] != 0)


def test_autocast() -> None:
    theirs, ours = pair(batch_first=True, add_bias_kv=True, add_zero_attn=True)
    x = torch.randn(BATCH, KEYS, WIDTH)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for call in ({}, {"attn_mask": torch.randn(KEYS, KEYS)}, {"key_padding_mask": padding()}):
            torch.testing.assert_close(
                ours(x, x, x, **call), theirs(x, x, x, **call), rtol=0.05, atol=0.05, check_dtype=False
            )
        ours.mapping = "fusedmax"
        assert ours(x, x, x, need_weights=False)[0].dtype == torch.bfloat16


def test_dropout_acts_in_training_alone() -> None:
    _, ours = pair("sparsemax", batch_first=True, dropout=0.5)
    x = torch.randn(BATCH, KEYS, WIDTH)
    assert not torch.equal(ours(x, x, x)[0], ours(x, x, x)[0])
    ours.eval()
    assert torch.equal(ours(x, x, x)[0], ours(x, x, x)[0])


def test_the_mappings_strengths_are_learned() -> None:
    fusedmax = regmax.nn.Fusedmax(lam=torch.full((HEADS, 1, 1), 0.1), learnable=True)
    attend = regmax.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, mapping=fusedmax)
    x = torch.randn(BATCH, KEYS, WIDTH)
    attend(x, x, x)[0].pow(2).sum().backward()
    for name in ("raw_lam", "raw_gamma"):
        assert attend.get_parameter(f"mapping.strengths.{name}").grad.abs().sum() > 0
    again = regmax.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, mapping=copy.deepcopy(fusedmax))
    again.load_state_dict(attend.state_dict())
    assert torch.equal(again(x, x, x)[0], attend(x, x, x)[0])


def test_gamma_is_annealed_inside() -> None:
    attend = regmax.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, mapping=regmax.nn.Sparsemax())
    schedule = regmax.nn.AnnealGamma(attend, start=100.0, end=0.1, steps=1)
    x = torch.randn(BATCH, KEYS, WIDTH)
    assert torch.all(attend(x, x, x)[1] > 0)
    schedule.step()
    assert torch.any(attend(x, x, x, average_attn_weights=False)[1] == 0)


@pytest.mark.parametrize(
    ("mapping", "shown"),
    [
        ("sparsemax", "(mapping): Sparsemax("),
        (regmax.FusedLasso(lam=0.2), "Strengths(lam=0.2, gamma=1)"),
        (regmax.OscarComposition(lam=0.2), "mapping=OscarComposition(lam=0.2)"),
    ],
)
def test_the_mapping_is_shown(mapping: Any, shown: str) -> None:
    assert shown in repr(regmax.nn.MultiheadAttention(8, 2, mapping=mapping))
    assert shown in repr(regmax.nn.GlobalAttention(8, mapping=mapping))
    assert shown in repr(regmax.nn.AdditiveAttention(8, 6, mapping=mapping))


def test_wrong_arguments_raise() -> None:
    with pytest.raises(ValueError, match="`mapping` must be one of"):
        regmax.nn.MultiheadAttention(8, 2, mapping="maxout")
    with pytest.raises(ValueError, match=r"must act along the keys, dim=-1. Got dim=1"):
        regmax.nn.MultiheadAttention(8, 2, mapping=regmax.nn.Sparsemax(dim=1))
    attend = regmax.nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(2, 3, 8)
    with pytest.raises(
        TypeError, match=r"key_padding_mask=...\)` must be boolean, True = ignore, or floating. Got"
    ):
        attend(x, x, x, key_padding_mask=torch.zeros(2, 3, dtype=torch.long))
    with pytest.raises(
        ValueError, match=r"attn_mask=...\)` must have shape \(3, 3\) or \(4, 3, 3\). Got \(2, 3\)"
    ):
        attend(x, x, x, attn_mask=torch.zeros(2, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"needs three sequences.*Got \(2, 3, 8\), \(3, 8\), \(3, 8\)"):
        attend(x, x[0], x[0])
    nested = torch.nested.nested_tensor([torch.randn(2, 8), torch.randn(3, 8)], layout=torch.jagged)
    with pytest.raises(TypeError, match="takes no nested tensors"):
        attend(nested, nested, nested)


def test_the_module_compiles() -> None:
    torch.compiler.reset()
    _, ours = pair("fusedmax", batch_first=True)
    x = torch.randn(BATCH, KEYS, WIDTH)
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(
        compiled(x, x, x, key_padding_mask=padding()), ours(x, x, x, key_padding_mask=padding())
    )
