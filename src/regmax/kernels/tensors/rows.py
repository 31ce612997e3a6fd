"""What every function on rows does with its optional arguments."""

import torch
from torch import Tensor


def kept_positions(keep: Tensor | None, x: Tensor) -> Tensor:
    """Return `keep` in the shape of `x`, True everywhere for None."""
    return torch.ones_like(x, dtype=torch.bool) if keep is None else keep.expand_as(x)


def as_tensor(theta: float | Tensor | None, like: Tensor) -> Tensor:
    """Return the strength as a tensor that broadcasts against rows; NaN where a kernel has none."""
    if isinstance(theta, Tensor):
        return theta.to(like.dtype)
    return like.new_full((1,), torch.nan if theta is None else theta)
