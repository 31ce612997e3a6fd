"""Laying tensors out as rows: `dim` last, float32 or float64, masks and strengths aligned."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from regmax.arrays import as_number, check_plain, is_array
from regmax.frontends.checks import check_dim, check_mask, check_scores, parameter_shape
from regmax.frontends.torch.modes import is_plain
from regmax.frontends.torch.structure import HALF
from regmax.regularizers.base import Bounds


class Rows(NamedTuple):
    """Scores with rows along the last dimension, and their original layout."""

    x: Tensor  # (..., d)
    keep: Tensor | None  # broadcasts to x
    theta: Any  # None, a number, or a tensor that broadcasts to x[..., :1]
    gamma: Any  # a number, or a tensor that broadcasts to x[..., :1]
    dim: int
    dtype: torch.dtype

    def restore(self, y: Tensor) -> Tensor:
        """Weights in the scores' layout and dtype."""
        return y.movedim(-1, self.dim).to(self.dtype)

    def divided(self, *, centred: bool = True) -> Tensor:
        """The scores divided by gamma, with `centred` relative to the row's largest kept one; deleted ones are -inf.

        The quotients saturate, so that no finite score becomes -inf, which would delete it. Deleted scores are not
        divided: their weight is zero, but they would make gamma's gradient NaN.
        """
        x, gamma = self.x, self.gamma
        if (not isinstance(gamma, Tensor) and gamma == 1) or not x.shape[-1]:
            return x
        deleted = x.detach() == -torch.inf
        deleted = deleted if self.keep is None else deleted | ~self.keep
        scores, most = x.masked_fill(deleted, 0.0), torch.finfo(x.dtype).max
        if centred:
            top = x.detach().masked_fill(deleted, -torch.inf).amax(-1, keepdim=True)
            scores = (scores - torch.where(top.isfinite(), top, 0.0)).clamp(min=-most)
        scores = torch.where(scores.detach().isfinite(), (scores / gamma).clamp(-most, most), scores)
        return scores.masked_fill(deleted, -torch.inf)


def prepare(
    call: str,
    x: Tensor,
    dim: int,
    gamma: Any,
    mask: Any,
    theta: Any = None,
    bounds: Bounds | None = None,
    *,
    halves: bool = False,
) -> Rows:
    """Check the arguments and lay the scores out as rows, in float32 if they are in half precision, unless `halves`."""
    check_plain(call, x)
    check_scores(call, x)
    dim, dtype, shape = check_dim(call, dim, x.ndim), x.dtype, x.shape
    gamma = _parameter(call, gamma, Bounds(f"{call}: gamma", above=0.0), x, dim)
    theta = None if bounds is None else _parameter(call, theta, bounds, x, dim)
    if mask is not None:
        check_mask(call, mask, x)
        mask = mask.reshape((1,) * (len(shape) - mask.ndim) + mask.shape).movedim(dim, -1)
    x = x.movedim(dim, -1)
    if dtype in HALF:
        x = x if halves else x.float()
    elif dtype not in (torch.float32, torch.float64):
        raise TypeError(f"`{call}` computes in float32 and float64. Got {dtype}: convert first.")
    return Rows(x, mask, theta, gamma, dim, dtype)


def _parameter(call: str, value: Any, bounds: Bounds, x: Tensor, dim: int) -> Any:
    """A strength, checked against its bounds: a number, or a tensor that broadcasts to x[..., :1], `dim` last."""
    value = as_number(value)
    bounds.check(value)
    if not is_array(value):
        return value
    if not isinstance(value, Tensor):
        raise TypeError(
            f"`{call}`: parameters of a tensor are numbers or tensors. Got {type(value).__name__}."
        )
    # Reading a strength's entries synchronizes an accelerator and cannot be traced: only plain CPU tensors are read.
    if is_plain(value) and value.is_cpu and value.numel():
        for extreme in torch.aminmax(value.detach()):
            bounds.check(float(extreme))
    work = torch.float32 if x.dtype in HALF else x.dtype
    full = value.reshape(parameter_shape(bounds.call, value.shape, x.shape, dim))
    return full.movedim(dim, -1).to(device=x.device, dtype=work)
