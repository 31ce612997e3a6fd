"""`torch.export` with a dynamic number and length of rows: programs run at sizes that they were not traced with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from fronts import choose_core
from table import DEFAULTS, Entry
from torch import Tensor
from torch.export import Dim

import regmax
from regmax.mappings import MAPPINGS

BATCH, LENGTH, KEYS = Dim("batch"), Dim("length"), Dim("keys")
SIZES = ((2, 2), (5, 200), (4, 64))  # traced at (3, 7)


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
    """Fusedmax with a strength per row."""

    def forward(self, x: Tensor, lam: Tensor) -> Tensor:
        """The weights."""
        return regmax.fusedmax(x, lam=lam)


def test_the_program_is_differentiable() -> None:
    x = torch.randn(3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    lam = torch.full((3, 1), 0.1, dtype=torch.float64)
    shapes = ({0: BATCH, 1: LENGTH}, {0: BATCH})
    program = torch.export.export(Learned(), (x, lam), dynamic_shapes=shapes).module()
    x = torch.randn(5, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    x.data[0, 3] = -torch.inf
    lam = torch.full((5, 1), 0.2, dtype=torch.float64, requires_grad=True)
    v = torch.randn(5, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    ours = torch.autograd.grad(program(x, lam), (x, lam), v)
    expected = torch.autograd.grad(regmax.fusedmax(x, lam=lam), (x, lam), v)
    torch.testing.assert_close(ours, expected)
    assert min(float(grad.abs().max()) for grad in ours) > 1e-3


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
    for size in ((3, 9, 70), (5, 40, 40)):
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
    for size in ((3, 70), (5, 12)):
        x = torch.randn(*size, 16)
        expected = module(x, x, x)
        for found, wanted in zip(program(x, x, x), expected, strict=True):
            torch.testing.assert_close(found, wanted, rtol=0, atol=2e-6)
