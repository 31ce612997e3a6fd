"""Mappings of smooth regularizers: solved by FISTA, differentiated by Proposition 1."""

import warnings
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from regmax.frontends.torch import autograd
from regmax.frontends.torch.modes import nested_forward_mode
from regmax.frontends.torch.rows import Rows
from regmax.kernels import fista, implicit
from regmax.regularizers import Regularizer, SmoothRegularizer


class ConvergenceWarning(UserWarning):
    """Some rows stopped before their duality gap was under the tolerance."""


def argmax_rows(omega: Regularizer, rows: Rows) -> Tensor:
    """Pi_Omega on rows, differentiable with respect to the scores."""
    if not isinstance(omega, SmoothRegularizer):
        raise TypeError(
            f"A regularizer needs a kernel or must be a `SmoothRegularizer`. Got {type(omega).__name__}."
        )
    keep = rows.x.detach() != -torch.inf
    keep = keep if rows.keep is None else keep & rows.keep
    y: Tensor = SmoothArgmax.apply(rows.x, keep, omega)
    return y + _by_own_parameters(omega, y.detach()) if torch.is_grad_enabled() else y


def _by_own_parameters(omega: SmoothRegularizer, y: Tensor) -> Tensor | float:
    """Zero, with the first derivative of Pi_Omega in tensors that `value` learns: dy = -J d(grad Omega(y))."""
    slope = omega.gradient(y.double())
    return -_product(omega, y, (slope - slope.detach()).to(y.dtype)) if slope.requires_grad else 0.0


class SmoothArgmax(Function):
    """Pi_Omega(x) for a smooth Omega."""

    @staticmethod
    def forward(x: Tensor, keep: Tensor, omega: SmoothRegularizer) -> Tensor:
        scores, kept = _as_rows(x.detach()), _as_rows(keep.expand(x.shape))
        return _solve(omega, scores, kept).reshape(x.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.omega = inputs[2]
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Any:
        return _product(ctx.omega, ctx.saved_tensors[0], v), None, None

    @staticmethod
    @nested_forward_mode
    def jvp(ctx: Any, saved: Any, x_t: Tensor, *_: Any) -> Tensor:
        return _product(ctx.omega, saved[0], x_t)

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, keep: Tensor, omega: SmoothRegularizer) -> Any:
        x = autograd.batch_first(x, in_dims[0], info.batch_size)
        return SmoothArgmax.apply(x, autograd.broadcast_batch(keep, in_dims[1], x), omega), 0


def _as_rows(x: Tensor) -> Tensor:
    return x.reshape(x.shape[:-1].numel(), x.shape[-1])


def _solve(omega: SmoothRegularizer, x: Tensor, keep: Tensor) -> Tensor:
    """Rows solved in float64, around their maximum; NaN for rows with NaN or +inf, zeros where nothing is kept."""
    scores = torch.where(keep, x, -torch.inf).double()
    top = scores.amax(-1, keepdim=True) if x.shape[-1] else scores
    usual = top.isfinite().squeeze(-1) if x.shape[-1] else top.new_zeros(len(x), dtype=torch.bool)
    y = torch.where(keep & ~(top == -torch.inf), torch.nan, 0.0).to(scores)
    if bool(usual.any()):
        kept = keep[usual]
        centred = torch.where(kept, scores[usual] - top[usual], 0.0)
        y[usual] = _solve_usual(omega, centred, kept)
    return y.to(x.dtype)


def _solve_usual(omega: SmoothRegularizer, x: Tensor, keep: Tensor) -> Tensor:
    def project(w: Tensor, kept: Tensor) -> Tensor:
        return autograd.map_rows(w, kept, None, "sparsemax")[0]

    newton = partial(implicit.jacobian_product, omega.hessian)
    problem = fista.Problem(_checked_value(omega), omega.gradient, newton, project)
    y, gap = fista.solve(problem, x, keep, omega.tol, omega.max_iter)
    missed = int((~(gap <= omega.tol)).sum())
    if missed:
        warnings.warn(
            f"`{type(omega).__name__}`: {missed} of {len(gap)} rows did not reach tol={omega.tol:g} in "
            f"max_iter={omega.max_iter} steps; the largest duality gap is {float(gap.max()):.2g}. "
            "Raise `max_iter` or `tol`.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return y


def _checked_value(omega: SmoothRegularizer) -> fista.Rowwise:
    def value(y: Tensor) -> Tensor:
        result = omega.value(y)
        if not isinstance(result, Tensor) or result.shape != y.shape[:-1]:
            got = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
            raise ValueError(
                f"`{type(omega).__name__}.value(y)` must give one number per row, shape {tuple(y.shape[:-1])}. "
                f"Got {got}: sum along the last dimension."
            )
        return result

    return value


def _product(omega: SmoothRegularizer, y: Tensor, v: Tensor) -> Tensor:
    weights, directions = _as_rows(y).double(), _as_rows(v).double()
    return implicit.jacobian_product(omega.hessian, weights, directions).reshape(y.shape).to(v.dtype)
