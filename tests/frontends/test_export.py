"""`torch.export` with a dynamic number and length of rows: programs run at sizes that they were not traced with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from fronts import choose_core
from table import DEFAULTS, Entry
from torch import Tensor
from torch.autograd import forward_ad
from torch.export import Dim

import regmax
from regmax.mappings import MAPPINGS

BATCH, LENGTH, KEYS = Dim("batch"), Dim("length"), Dim("keys")
SIZES = ((2, 2), (5, 200), (4, 64), (1, 1), (3, 1), (1, 9), (2, 5000), (0, 4))  # traced at (3, 7)


class Mapping(torch.nn.Module):
    """A mapping of scores under a mask."""

    def __init__(self, entry: Entry) -> None:
        super().__init__()
        self.entry = entry

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """The weights."""
        return self.entry(x, mask=mask, gamma=2.0)


def scores(n: int, d: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(d)
    return torch.randn(n, d, generator=generator), torch.rand(n, d, generator=generator) > 0.3


def exported(entry: Entry) -> Any:
    rows = {0: BATCH, 1: LENGTH}
    return torch.export.export(Mapping(entry), scores(3, 7), dynamic_shapes=(rows, rows))


@pytest.mark.parametrize("entry", DEFAULTS, ids=str)
def test_a_mapping_runs_at_other_sizes(entry: Entry) -> None:
    program = exported(entry).module()
    for size in SIZES:
        x, mask = scores(*size)
        torch.testing.assert_close(program(x, mask), entry(x, mask=mask, gamma=2.0), rtol=0, atol=1e-7)


def test_the_program_needs_no_core(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = DEFAULTS[2]
    program = exported(entry).module()
    x, mask = scores(5, 9)
    expected = entry(x, mask=mask, gamma=2.0)
    choose_core(False, monkeypatch)
    torch.testing.assert_close(program(x, mask), expected, rtol=0, atol=1e-6)


def test_the_program_is_saved_and_loaded(tmp_path: Path) -> None:
    entry = DEFAULTS[2]
    torch.export.save(exported(entry), tmp_path / "fusedmax.pt2")
    program = torch.export.load(tmp_path / "fusedmax.pt2").module()
    x, mask = scores(4, 30)
    torch.testing.assert_close(program(x, mask), entry(x, mask=mask, gamma=2.0), rtol=0, atol=1e-7)


class Learned(torch.nn.Module):
    """A mapping with tensors as strengths, gamma and, if it has one, the other."""

    def __init__(self, entry: Entry) -> None:
        super().__init__()
        self.entry = entry

    def forward(self, x: Tensor, gamma: Tensor, theta: Tensor | None = None) -> Tensor:
        """The weights."""
        return self.entry(x, gamma=gamma, **dict.fromkeys(self.entry.parameters, theta))


def learned(entry: Entry, n: int, d: int, seed: int) -> tuple[Tensor, ...]:
    """Scores, one of which is -inf, and strengths, one per row."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, dtype=torch.float64, generator=generator)
    if d > 4:
        x[0, 3] = -torch.inf
    strengths = (
        torch.full((n, 1), value, dtype=torch.float64) for value in (0.7, *entry.parameters.values())
    )
    return tuple(part.requires_grad_() for part in (x, *strengths))


@pytest.mark.parametrize("entry", DEFAULTS, ids=str)
def test_the_program_is_differentiable(entry: Entry) -> None:
    """In the scores and strengths, in reverse and in forward mode, at sizes that it was not traced with."""
    module = Learned(entry)
    inputs = learned(entry, 3, 7, 0)
    shapes = ({0: BATCH, 1: LENGTH}, {0: BATCH}, *({0: BATCH} for _ in entry.parameters))
    program = torch.export.export(module, inputs, dynamic_shapes=shapes).module()
    for n, d in ((5, 12), (2, 300), (1, 1)):
        inputs = learned(entry, n, d, seed=1)
        v = torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
        ours = torch.autograd.grad(program(*inputs), inputs, v)
        expected = torch.autograd.grad(module(*inputs), inputs, v)
        torch.testing.assert_close(ours, expected)
        assert d != 12 or min(float(grad.abs().max()) for grad in ours) > 1e-3
        with forward_ad.dual_level():
            duals = [forward_ad.make_dual(part.detach(), torch.ones_like(part)) for part in inputs]
            duals[0] = forward_ad.make_dual(inputs[0].detach(), v)
            tangents = [forward_ad.unpack_dual(call(*duals)).tangent for call in (program, module)]
        torch.testing.assert_close(*tangents)


def test_transforms_of_a_program_raise() -> None:
    x, mask = scores(5, 9)
    program = exported(DEFAULTS[2]).module()
    with pytest.raises(
        NotImplementedError, match=r"do not differentiate exported programs. Use `torch.autograd`"
    ):
        torch.func.grad(lambda x: program(x, mask).sum())(x)


class Attend(torch.nn.Module):
    """Causal attention."""

    def __init__(self, mapping: str) -> None:
        super().__init__()
        self.mapping = mapping

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The output."""
        return regmax.attention(q, k, v, mapping=self.mapping, is_causal=True)


def heads(batch: int, queries: int, keys: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(keys)
    return tuple(torch.randn(batch, 4, n, 8, generator=generator) for n in (queries, keys, keys))


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_attention_runs_at_other_sizes(mapping: str) -> None:
    keys = {0: BATCH, 2: KEYS}
    shapes = ({0: BATCH, 2: LENGTH}, keys, keys)
    program = torch.export.export(Attend(mapping), heads(2, 5, 7), dynamic_shapes=shapes).module()
    for size in ((3, 9, 70), (5, 40, 40), (1, 1, 1), (1, 3, 1), (2, 1, 600)):
        q, k, v = heads(*size)
        expected = regmax.attention(q, k, v, mapping=mapping, is_causal=True)
        torch.testing.assert_close(program(q, k, v), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_multihead_attention_runs_at_other_sizes(mapping: str) -> None:
    torch.manual_seed(0)
    module = regmax.nn.MultiheadAttention(16, 2, batch_first=True, mapping=mapping, add_zero_attn=True).eval()
    x = torch.randn(2, 5, 16)
    rows = {0: BATCH, 1: LENGTH}
    shapes = {"query": rows, "key": rows, "value": rows}
    program = torch.export.export(module, (x, x, x), dynamic_shapes=shapes).module()
    for size in ((3, 70), (5, 12), (1, 1), (1, 300)):
        x = torch.randn(*size, 16)
        expected = module(x, x, x)
        for found, wanted in zip(program(x, x, x), expected, strict=True):
            torch.testing.assert_close(found, wanted, rtol=0, atol=2e-6)
