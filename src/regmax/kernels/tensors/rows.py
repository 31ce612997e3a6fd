"""The optional arguments of every function on rows."""

import torch
from torch import Tensor

from regmax.arrays import NUMBER


def kept_positions(keep: Tensor | None, x: Tensor) -> Tensor:
    """Return `keep` in the shape of `x`, True everywhere for None."""
    return torch.ones_like(x, dtype=torch.bool) if keep is None else keep.expand_as(x)


def as_tensor(theta: float | Tensor | None, like: Tensor) -> Tensor:
    """Return a strength as a tensor that broadcasts against rows; NaN if a kernel has none.

    One number per row, a tensor of one dimension less than the rows, gets a last dimension.
    """
    if not isinstance(theta, Tensor):
        return like.new_full((1,), torch.nan if theta is None else theta)
    one_per_row = 0 < theta.ndim == like.ndim - 1
    return (theta.unsqueeze(-1) if one_per_row else theta).to(like.dtype)


def divided(kernel: str, x: Tensor, kept: Tensor, gamma: float | Tensor) -> Tensor:
    """Return x / gamma, saturated so that no score becomes infinite; `x` is finite.

    A mapping onto the simplex does not change if a constant is added to its scores: they are divided relative to the
    largest kept score. Those of a proximal operator are not.
    """
    if isinstance(gamma, NUMBER) and gamma == 1:
        return x
    if not kernel.startswith("prox"):
        top = torch.where(kept, x, -torch.inf).amax(-1, keepdim=True)
        x = torch.where(kept, x - top, 0)
    most = torch.finfo(x.dtype).max
    return (x / as_tensor(gamma, x)).clamp(-most, most)


def sort_descending(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows in decreasing order and the indices; equal numbers keep their order.

    ONNX has no sort that is called stable, but its sort is.
    """
    if torch.onnx.is_in_onnx_export():
        values, order = x.sort(dim=-1, descending=True)
    else:
        values, order = x.sort(dim=-1, descending=True, stable=True)
    return values, order
