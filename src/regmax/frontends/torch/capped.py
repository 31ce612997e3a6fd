"""The projection onto the capped simplex of tensors, with gradients of the scores, the upper bounds and the total.

The projection is piecewise linear: on the free coordinates dy = dx - dtau, at the upper bounds dy = du, elsewhere 0,
and dtau makes the sum of dy equal dc. The weights are computed without gradient, and a term is added that is zero and
has this derivative; it is made of differentiable operations, so every order, mode and transform works.
"""

from typing import Any

import torch
from torch import Tensor

from regmax.frontends.checks import (
    CAPPED,
    check_capped,
    check_capped_arrays,
    check_dim,
    check_scores,
    parameter_shape,
)
from regmax.frontends.torch.modes import is_plain
from regmax.kernels import capped


def project_capped_simplex(x: Tensor, dim: int, upper: Any, total: Any) -> Tensor:
    """clip(x - tau, 0, upper) with sum `total` along `dim`."""
    check_scores(CAPPED, x)
    dim = check_dim(CAPPED, dim, x.ndim)
    check_capped_arrays(x, upper, total)
    work = torch.float32 if x.dtype.itemsize < 4 else x.dtype
    rows = x.movedim(dim, -1).to(work)
    bounds = _as_tensor(upper, x, work).expand(x.shape).movedim(dim, -1)
    sums = _as_tensor(total, x, work)
    sums = sums.reshape(parameter_shape("project_capped_simplex(..., total=...)", sums.shape, x.shape, dim))
    sums = sums.movedim(dim, -1)
    if not x.shape[dim]:
        return x.clone()
    exact = torch.float64 if x.device.type != "mps" else work
    with torch.no_grad():
        scores, most, total = (part.detach().to(exact) for part in (rows, bounds, sums))
        if is_plain(x) and x.is_cpu and rows.numel():
            _check_values(scores, most, total, tolerance=float(torch.finfo(x.dtype).eps))
        y = capped.project(scores, most, total).to(work)
    return (y + _zero_with_gradient(y, rows, bounds, sums)).movedim(-1, dim).to(x.dtype)


def _as_tensor(value: Any, x: Tensor, work: torch.dtype) -> Tensor:
    if isinstance(value, Tensor):
        return value.to(device=x.device, dtype=work)
    return torch.tensor(float(value), dtype=work, device=x.device)


def _check_values(x: Tensor, upper: Tensor, total: Tensor, tolerance: float) -> None:
    most = torch.where(x == -torch.inf, 0.0, upper).sum(-1, keepdim=True)
    short = most < total * (1 - tolerance * x.shape[-1])
    check_capped(
        bool((upper >= 0).all()),
        bool(((total >= 0) & total.isfinite()).all()),
        None if not bool(short.any()) else (float(most[short][0]), float(total.expand(most.shape)[short][0])),
    )


def _zero_with_gradient(y: Tensor, x: Tensor, upper: Tensor, total: Tensor) -> Tensor | float:
    if is_plain(x) and not any(part.requires_grad for part in (x, upper, total)):
        return 0.0
    free, at_upper = (y > 0) & (y < upper.detach()), (y > 0) & (y == upper.detach())
    dx, du = _tangent(x, free), _tangent(upper, at_upper)
    count = free.sum(-1, keepdim=True).clamp(min=1)
    dtau = ((dx + du).sum(-1, keepdim=True) - (total - total.detach())) / count
    return torch.where(free, dx - dtau, du)


def _tangent(part: Tensor, chosen: Tensor) -> Tensor:
    """Zeros with the derivative of the chosen entries; infinite ones are never chosen."""
    entries = torch.where(chosen, part, 0.0)
    return entries - entries.detach()
