"""Attention with and without the 8-bit screen: calls to compare, and queries and keys that are hard for it."""

from collections.abc import Callable

import torch
from torch import Tensor

import regmax
from regmax.kernels import native
from regmax.sparse_attention import SparseWeights

Attend = Callable[[], tuple[Tensor, ...]]


def least_keys(mapping: str) -> int:
    """From how many keys on the core screens a mapping, and at least 1,024 (csrc/runtime/tuning.hpp)."""
    return {"sqpnormmax": 2048, "oscarmax": 2048, "entmax": 4096}.get(mapping.split(",")[0], 1024)


def compare(attend: Attend) -> tuple[native.ScreenCounts, bool]:
    """What the screen did in a call, and whether the call gives the same bits without it."""
    native.screen_counts(reset=True)
    screened = attend()
    counts = native.screen_counts(reset=True)
    native.use_int8_screen(False)
    try:
        plain = attend()
    finally:
        native.use_int8_screen(True)
    same = [
        ours.dtype == theirs.dtype
        and ours.shape == theirs.shape
        and torch.equal(ours.view(torch.uint8), theirs.view(torch.uint8))
        for ours, theirs in zip(screened, plain, strict=True)
    ]
    return counts, all(same)


def forward(q: Tensor, k: Tensor, v: Tensor, **options: object) -> Attend:
    def attend() -> tuple[Tensor, ...]:
        out, weights = regmax.attention(q, k, v, return_weights="sparse", **options)  # type: ignore[call-overload]
        assert isinstance(weights, SparseWeights)
        return out, weights.starts, weights.columns, weights.values

    return attend


def training(q: Tensor, k: Tensor, v: Tensor, **options: object) -> Attend:
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]

    def attend() -> tuple[Tensor, ...]:
        out = regmax.attention(*leaves, **options)  # type: ignore[call-overload]
        direction = torch.randn(out.shape, generator=torch.Generator().manual_seed(3))
        return (out.detach(), *torch.autograd.grad(out, leaves, direction))

    return attend


def close_to_keys(
    queries: int, keys: int, e: int, *, heads: int = 2, shared: int = 1, size: float = 2.0, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries that are each near two keys: a few scores stand out, as in trained attention."""
    random = torch.Generator().manual_seed(seed)
    k = torch.randn(heads // shared, keys, e, generator=random)
    chosen = torch.randint(keys, (heads, queries, 2), generator=random)
    all_keys = k.repeat_interleave(shared, 0)
    near = torch.stack([all_keys[h][chosen[h]].sum(1) for h in range(heads)])
    q = size * (torch.randn(heads, queries, e, generator=random) + near / 2)
    return q, k, torch.randn(heads // shared, keys, e, generator=random)


def flat(random: torch.Generator, n: int) -> tuple[Tensor, Tensor]:
    return 0.02 * torch.randn(1, 320, 64, generator=random), torch.randn(1, n, 64, generator=random)


def tied(random: torch.Generator, n: int) -> tuple[Tensor, Tensor]:
    k = torch.randint(-1, 2, (1, n, 64), generator=random).float()
    return torch.randint(-2, 3, (1, 320, 64), generator=random).float(), k[:, torch.arange(n) % 300]


def errors_of_one_sign(random: torch.Generator, n: int) -> tuple[Tensor, Tensor]:
    # Every number is rounded down by half a step, except one that sets the scale.
    numbers = torch.randint(1, 100, (1, n, 64), generator=random).float() + 0.4999
    numbers[..., 0] = 127
    q = torch.randint(1, 100, (1, 320, 64), generator=random).float() + 0.4999
    q[..., 0] = 127
    return q / 300, numbers / 127


def one_large_coordinate(random: torch.Generator, n: int) -> tuple[Tensor, Tensor]:
    q, k = torch.randn(1, 320, 64, generator=random), torch.randn(1, n, 64, generator=random)
    k[..., 7] += 300
    return q, k


def near_the_threshold(random: torch.Generator, n: int) -> tuple[Tensor, Tensor]:
    # Scores that differ by single units in the last place around the threshold.
    k = torch.randn(1, 1, 64, generator=random).repeat(1, n, 1)
    k = torch.nextafter(k, k + torch.randint(-3, 4, k.shape, generator=random))
    return 5 * torch.randn(1, 320, 64, generator=random), k


def extreme_sizes(random: torch.Generator, n: int) -> tuple[Tensor, Tensor]:
    q, k = torch.randn(1, 320, 64, generator=random), torch.randn(1, n, 64, generator=random)
    q[0, ::7] = 0
    k[0, ::5] = 0
    k[0, 1] *= 1e-30
    q[0, 3] *= 1e-25
    q[0, 5] *= 1e18
    k[0, 2] *= 1e9
    return q, k


def not_finite(random: torch.Generator, n: int) -> tuple[Tensor, Tensor]:
    q, k = torch.randn(1, 320, 64, generator=random), torch.randn(1, n, 64, generator=random)
    q[0, 3, 5] = torch.nan
    q[0, 40, 5] = torch.inf
    return q, k


def keys_not_finite(random: torch.Generator, n: int) -> tuple[Tensor, Tensor]:
    q, k = torch.randn(1, 320, 64, generator=random), torch.randn(1, n, 64, generator=random)
    k[0, 9, 5] = torch.nan
    return q, k


HARD = (
    flat,
    tied,
    errors_of_one_sign,
    one_large_coordinate,
    near_the_threshold,
    extreme_sizes,
    not_finite,
    keys_not_finite,
)
