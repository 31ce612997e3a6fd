"""Queries, keys and values whose scores are of a given kind, the same bits in every run."""

import torch
from torch import Tensor

from regmax.bench.contestants import LAM

HEADS, HEAD = 8, 64
# A score is q·k / sqrt(64): if q is this number and zeros, the score is the key's first coordinate.
_UNIT = HEAD**0.5


def inputs(n: int, kind: str, heads: int = HEADS) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values that require gradients, one batch of heads of dimension 64.

    attention: every query is correlated with one key, whose score is about 2.4 while the others are N(0, 1), which
    gives 3 to 10 nonzero weights; normal, wide and flat: 1, 20 and 0.03 times N(0, 1); constant: all scores are equal;
    ramp, sawtooth and ties: the same such scores for every query.

    Example:
        >>> q, k, v = inputs(32, "ramp", heads=2)
        >>> (q[0, 0, 0] @ k[0, 0, 16] / 8).item()
        0.25
    """
    generator = torch.Generator().manual_seed(n)
    noise, k, v = (torch.randn(1, heads, n, HEAD, generator=generator) for _ in range(3))
    matching = k[:, :, torch.randperm(n, generator=generator)]
    factors = {"normal": 1.0, "wide": 20.0, "flat": 0.03, "constant": 0.0}
    if kind == "attention":
        q = noise + 0.3 * matching
    elif kind in factors:
        q = factors[kind] * noise
    else:
        q = torch.zeros_like(noise)
        q[..., 0] = _UNIT
        i = torch.arange(n)
        rows = {"ramp": 0.5 * i / n, "sawtooth": LAM * (i % 8), "ties": i.mul(7) % 3 / 4}
        k[..., 0] = rows[kind]
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()
