"""The dense composition that attention must equal: scores, mapping, matmul, by autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import regmax
from regmax.resolver import resolve

MAPPINGS: tuple[Any, ...] = (
    "sparsemax",
    "fusedmax",
    "oscarmax",
    "sqpnormmax",
    regmax.FusedLasso(lam=1.5),
    regmax.Oscar(lam=0.3),
    regmax.SquaredPNorm(p=1.2),
    "entmax",
    regmax.NegativeTsallisEntropy(alpha=1.2),
)


def compose(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mapping: Any,
    *,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    is_causal: bool = False,
    enable_gqa: bool = False,
) -> tuple[Tensor, Tensor]:
    """Output and weights, with every tensor expanded."""
    if enable_gqa:
        k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if bias is not None:
        scores = scores + bias
    keep = torch.ones_like(scores, dtype=torch.bool)
    if is_causal:
        keep = keep.tril()
    if mask is not None:
        keep = keep & mask
    y = resolve(mapping)(scores, -1, mask=keep)
    return y @ v, y


def draw(
    *,
    batch: tuple[int, ...] = (2,),
    heads: int = 4,
    kv_heads: int | None = None,
    queries: int = 33,
    keys: int = 47,
    e: int = 8,
    e_v: int = 5,
    spread: float = 1.0,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values that require gradients; `spread` sets how peaked the scores are."""
    generator = torch.Generator().manual_seed(seed)
    q = spread * torch.randn(*batch, heads, queries, e, generator=generator, dtype=torch.float64)
    k = torch.randn(*batch, kv_heads or heads, keys, e, generator=generator, dtype=torch.float64)
    v = torch.randn(*batch, kv_heads or heads, keys, e_v, generator=generator, dtype=torch.float64)
    q, k, v = (x.to(dtype).requires_grad_() for x in (q, k, v))
    return q, k, v


def make_mask(kind: str, queries: int, keys: int) -> Tensor | None:
    """A mask for a batch of two: right or left padding of the keys, or one row of keys per query, some empty."""
    if kind == "none":
        return None
    lengths = torch.tensor([keys - 5, keys // 2]).reshape(2, 1, 1, 1)
    if kind == "right":
        return torch.arange(keys) < lengths
    if kind == "left":
        return torch.arange(keys) >= keys - lengths
    mask = torch.rand(2, 1, queries, keys, generator=torch.Generator().manual_seed(1)) < 0.7
    mask[:, :, 3] = False
    return mask


def structure(y: Tensor) -> Tensor:
    """The structure that J depends on: the support, and which weights are equal, adjacent and in sorted order."""
    size = y.sort(-1).values
    return torch.cat([y > 0, y[..., 1:] == y[..., :-1], size[..., 1:] == size[..., :-1]], -1)


def regular_rows(y: Tensor, wanted: Tensor) -> Tensor:
    """The queries whose weights have the same structure in both, (..., queries, 1).

    J jumps if a weight vanishes or two become equal: rounding then decides in single precision, and gradients differ.
    Such weights are tiny or nearly equal, and rare.
    """
    return (structure(y) == structure(wanted)).all(-1, keepdim=True)


def gradients(out: Tensor, inputs: tuple[Tensor, ...], rows: Tensor | float = 1.0) -> tuple[Tensor, ...]:
    """Gradients of the output's product with a generic direction, at selected rows of the output."""
    generator = torch.Generator().manual_seed(2)
    direction = torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype)
    return torch.autograd.grad(out, inputs, direction * rows)


def relative_error(found: Tensor, wanted: Tensor) -> float:
    """The largest difference, relative to the largest entry (or to 0.1, if all of them vanish)."""
    return float((found - wanted).detach().abs().max() / wanted.detach().abs().max().clamp(min=0.1))
