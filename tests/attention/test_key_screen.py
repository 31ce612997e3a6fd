"""Decoding with a copy of the keys in 8 bits: the same bits with and without it, through every operation."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import regmax
from regmax.kernels import native
from regmax.sparse_attention import screen as screen_module

MAPPINGS = [
    "sparsemax",
    "fusedmax,lam=0.1",
    "oscarmax,lam=0.0005",
    "sqpnormmax,p=1.5",
    "sqpnormmax,p=1.3",
    "entmax,alpha=1.5",
    "entmax,alpha=1.25",
]


@pytest.fixture
def vnni() -> Iterator[None]:
    """The screen, on a machine that has it."""
    native.use_int8_screen(True)
    if not (native.int8_screen() and native.instruction_set() == "avx512"):
        pytest.skip("This machine has no AVX-512 VNNI.")
    yield
    native.use_int8_screen(True)


def tensors(
    batch: int, heads: int, shared: int, queries: int, keys: int, e: int, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    k, v = (torch.randn(batch, heads // shared, keys, e, generator=random) for _ in range(2))
    near = k[:, :, torch.randint(keys, (queries,), generator=random)].repeat_interleave(shared, 1)
    return 2 * torch.randn(batch, heads, queries, e, generator=random) + near, k, v


def check(q: Tensor, k: Tensor, v: Tensor, screen: regmax.KeyScreen, **options: Any) -> native.ScreenCounts:
    """Check that the copy changes no bit; what the screen did."""
    options = {"enable_gqa": True, "return_weights": "sparse"} | options
    plain, plain_weights = regmax.attention(q, k, v, **options)
    native.screen_counts(reset=True)
    out, weights = regmax.attention(q, k, v, key_screen=screen, **options)
    counts = native.screen_counts(reset=True)
    pairs = zip((out, *weights[:3]), (plain, *plain_weights[:3]), strict=True)
    for ours, theirs in pairs:
        assert torch.equal(ours.view(torch.uint8), theirs.view(torch.uint8))
    return counts


@pytest.mark.usefixtures("vnni")
@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize(("shared", "queries", "e"), [(1, 1, 64), (4, 1, 128), (2, 5, 48), (8, 7, 16)])
def test_decoding_has_the_same_bits(mapping: str, shared: int, queries: int, e: int) -> None:
    q, k, v = tensors(2, 8, shared, queries, 900, e)
    counts = check(q, k, v, regmax.KeyScreen(k), mapping=mapping)
    assert counts.rows == 2 * 8 * queries
    assert counts.fallbacks < counts.rows


@pytest.mark.usefixtures("vnni")
def test_masks_and_biases_have_the_same_bits() -> None:
    q, k, v = tensors(2, 4, 2, 3, 1000, 64)
    screen, random = regmax.KeyScreen(k), torch.Generator().manual_seed(1)
    padding = (torch.arange(1000) < 800).expand(2, 1, 1, 1000)
    gaps = torch.rand(2, 1, 1, 1000, generator=random) < 0.8
    rows = torch.rand(2, 4, 3, 1000, generator=random) < 0.8
    bias = torch.randn(2, 4, 3, 1000, generator=random)
    for options in (
        {"mask": padding},
        {"mask": gaps},
        {"mask": rows},
        {"bias": bias},
        {"mask": gaps, "bias": bias},
    ):
        assert check(q, k, v, screen, mapping="fusedmax", **options).rows > 0


@pytest.mark.usefixtures("vnni")
def test_flat_and_extreme_scores_have_the_same_bits() -> None:
    q, k, v = tensors(1, 4, 1, 2, 800, 64)
    check(0.01 * q, k, v, regmax.KeyScreen(k), mapping="sparsemax")
    k[0, 0, 5] = 1e30
    k[0, 1, 7] = 0
    k[0, 2, 9, 3] = torch.nan
    check(q, k, v, regmax.KeyScreen(k), mapping="sparsemax")


@pytest.mark.usefixtures("vnni")
def test_the_copy_follows_its_keys() -> None:
    q, k, v = tensors(3, 4, 2, 1, 700, 32)
    screen = regmax.KeyScreen(k[..., :650, :])
    for i in range(650, 700, 7):
        screen.append(k[..., i : min(i + 7, 700), :])
    assert check(q, k, v, screen, mapping="sparsemax").rows > 0
    assert screen.shape == k.shape
    screen.crop(600)
    k, v = k[..., :600, :], v[..., :600, :]
    assert check(q, k, v, screen, mapping="sparsemax").rows > 0
    order = torch.tensor([2, 0, 0, 1])
    screen.select(order)
    q, k, v = q[order], k[order], v[order]
    assert check(q, k, v, screen, mapping="sparsemax").rows > 0
    screen.repeat(2)
    q, k, v = (x.repeat_interleave(2, 0) for x in (q, k, v))
    assert check(q, k, v, screen, mapping="sparsemax").rows > 0
    assert screen.nbytes < k.numel() * 1.2


@pytest.mark.usefixtures("vnni")
def test_many_queries_ignore_the_copy() -> None:
    q, k, v = tensors(1, 2, 1, 40, 600, 32)
    check(q, k, v, regmax.KeyScreen(k), mapping="sparsemax")


@pytest.mark.usefixtures("vnni")
def test_sinks_and_half_precision_ignore_the_copy() -> None:
    q, k, v = tensors(1, 2, 1, 1, 600, 32)
    screen = regmax.KeyScreen(k)
    check(q, k, v, screen, mapping="sparsemax", sinks=torch.zeros(2), return_weights="sparse")
    q, k, v = (x.bfloat16() for x in (q, k, v))
    assert check(q, k, v, screen, mapping="sparsemax").rows == 0


def test_other_machines_hold_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen_module, "_reads_copies", lambda: False)
    q, k, v = tensors(2, 2, 1, 1, 600, 32)
    screen = regmax.KeyScreen(k[..., :590, :])
    screen.append(k[..., 590:, :])
    assert not regmax.KeyScreen.supports(k)
    assert (screen.shape, screen.nbytes, screen.parts()) == (k.shape, 0, None)
    plain = regmax.attention(q, k, v, mapping="sparsemax")
    assert torch.equal(regmax.attention(q, k, v, mapping="sparsemax", key_screen=screen), plain)
    screen.crop(500)
    screen.select(torch.tensor([1, 0, 0]))
    screen.repeat(2)
    assert screen.shape == (6, 2, 500, 32)


def test_a_copy_of_another_shape_raises() -> None:
    q, k, v = tensors(1, 2, 1, 1, 600, 32)
    screen = regmax.KeyScreen(k[..., :500, :])
    with pytest.raises(ValueError, match="must be a copy of k of shape"):
        regmax.attention(q, k, v, mapping="sparsemax", key_screen=screen)
    with pytest.raises(TypeError, match="must be a KeyScreen"):
        regmax.attention(q, k, v, mapping="sparsemax", key_screen=k)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="needs float32 keys of shape"):
        screen.append(k.double())
    with pytest.raises(ValueError, match="multiple of 16"):
        regmax.KeyScreen(torch.randn(3, 5))
