"""The combines of all scans are associative: tree order gives what left to right gives, and a wrong one is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

triton = pytest.importorskip("triton")

import torch
import tree_scans
import triton.language as tl
from triton.runtime import interpreter

from regmax.kernels.triton import chains, clusters, products

D = 32
N = tl.constexpr(D)


@triton.jit
def scan_one(X, Y, COMBINE: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(Y + i, tl.associative_scan(tl.load(X + i), 0, COMBINE))


@triton.jit
def scan_two(X, F, Y, COMBINE: tl.constexpr):
    i = tl.arange(0, N)
    y, _ = tl.associative_scan((tl.load(X + i), tl.load(F + i)), 0, COMBINE)
    tl.store(Y + i, y)


@triton.jit
def scan_clips(S, L, H, Y, COMBINE: tl.constexpr):
    i = tl.arange(0, N)
    _, y, _ = tl.associative_scan((tl.load(S + i), tl.load(L + i), tl.load(H + i)), 0, COMBINE)
    tl.store(Y + i, y)


@triton.jit
def scan_peaks(X, PLACE, F, Y, COMBINE: tl.constexpr):
    i = tl.arange(0, N)
    y, _, _ = tl.associative_scan((tl.load(X + i), tl.load(PLACE + i), tl.load(F + i)), 0, COMBINE)
    tl.store(Y + i, y)


@triton.jit
def clip_wrongly(shift, low, high, next_shift, next_low, next_high):
    """Not associative: the limits are not shifted."""
    return shift + next_shift, tl.maximum(low, next_low) + next_shift, tl.minimum(high, next_high)


RNG = np.random.default_rng(0)
# Small integers, whose sums are exact in any order.
X = torch.tensor(RNG.integers(-4, 5, D).astype(np.float32))
FLAGS = torch.tensor((RNG.random(D) < 0.2).astype(np.int32))
CODES = torch.tensor(RNG.integers(0, 3, D).astype(np.int32))
SCANS: dict[str, tuple[Any, tuple[torch.Tensor, ...], Any]] = {
    "sums of segments": (scan_two, (X, FLAGS), chains.segment_add),
    "nearest known": (scan_two, (X, FLAGS), products.nearest),
    "latest decision": (scan_one, (CODES,), chains._latest),
    "clips": (scan_clips, (X, X - 2, X + 2), chains._clip_then),
    "peaks": (scan_peaks, (X, torch.arange(D, dtype=torch.int32), FLAGS), clusters._peak),
}


def both_orders(kernel: Any, arrays: tuple[torch.Tensor, ...], combine: Any) -> list[torch.Tensor]:
    results = []
    for scan in (tree_scans.tree_scan, tree_scans.LEFT_TO_RIGHT):
        interpreter.ScanOps.generic_scan = scan
        try:
            results.append(torch.empty_like(arrays[0]))
            kernel[(1,)](*arrays, results[-1], COMBINE=combine)
        finally:
            tree_scans.install()
    return results


@pytest.mark.parametrize("name", SCANS)
def test_tree_order_gives_what_left_to_right_gives(name: str) -> None:
    tree, sequence = both_orders(*SCANS[name])
    assert torch.equal(tree, sequence)


def test_a_combine_that_is_not_associative_is_found() -> None:
    tree, sequence = both_orders(scan_clips, (X, X - 2, X + 2), clip_wrongly)
    assert not torch.equal(tree, sequence)


def test_the_scan_of_clips_is_the_recursion() -> None:
    lam, u, expected = 2.0, 0.0, []
    for w in X.tolist():
        u = min(max(u, -lam), lam) + w
        expected.append(u)
    start = torch.arange(D) == 0
    arrays = torch.where(start, 0, X), torch.where(start, X, X - lam), torch.where(start, X, X + lam)
    assert both_orders(scan_clips, arrays, chains._clip_then)[0].tolist() == expected
