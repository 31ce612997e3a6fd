"""Mappings of smooth regularizers: solved by an interior point method, differentiated by Proposition 1."""

import warnings
from typing import Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo
from torch.autograd import Function

from regmax.frontends.torch import autograd
from regmax.frontends.torch.modes import nested_forward_mode
from regmax.frontends.torch.rows import Rows
from regmax.kernels import implicit, interior
from regmax.regularizers import Regularizer, SmoothRegularizer

# Hessians are (rows, d, d); rows are solved in chunks of at most this many numbers.
_CHUNK = 2**23
# The relative rounding error up to which a Hessian product equals that of the diagonal.
_ROUNDING = 1e-9


class ConvergenceWarning(UserWarning):
    """Some rows stopped before their duality gap was below the tolerance."""


@_disable_dynamo  # `torch.compiler.disable`, but the compiler is imported by the first call
def argmax_rows(omega: Regularizer, rows: Rows) -> Tensor:
    """Pi_Omega on rows divided by gamma, differentiable with respect to the scores."""
    x = rows.divided()
    if not isinstance(omega, SmoothRegularizer):
        raise TypeError(
            f"A regularizer needs a kernel or must be a `SmoothRegularizer`. Got {type(omega).__name__}."
        )
    keep = x.detach() != -torch.inf
    keep = keep if rows.keep is None else keep & rows.keep
    curved = Curved(omega)
    y: Tensor = SmoothArgmax.apply(x, keep, curved)
    return y + _by_own_parameters(curved, y.detach()) if torch.is_grad_enabled() else y


def _by_own_parameters(curved: "Curved", y: Tensor) -> Tensor | float:
    """Zero, with the first derivative of Pi_Omega in learned parameters of `value`: dy = -J d(grad Omega(y))."""
    slope = curved.omega.gradient(y.double())
    return -_product(curved, y, (slope - slope.detach()).to(y.dtype)) if slope.requires_grad else 0.0


class Curved:
    """A smooth Omega, and whether its Hessian is diagonal, which `SmoothArgmax.forward` determines."""

    def __init__(self, omega: SmoothRegularizer) -> None:
        self.omega = omega
        self.separable = False

    def derivatives(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients at rows of weights, and the Hessians (n, d, d) or their diagonals (n, d)."""
        y = torch.where(y == 0, implicit.ALMOST_ZERO, y)
        if not self.separable:
            return self.omega.gradient(y), self.omega.hessian(y)
        gradient, product, *_ = torch.func.vjp(self.omega.gradient, y)
        return gradient, product(torch.ones_like(y))[0]

    def hessian(self, y: Tensor) -> Tensor:
        """The Hessians (n, d, d) or their diagonals (n, d)."""
        return self.derivatives(y)[1]

    def separable_at(self, y: Tensor) -> bool:
        """Whether H times a random vector equals H's diagonal times it, at every row of weights."""
        if type(self.omega).hessian is not SmoothRegularizer.hessian:
            return False  # the user's Hessian is always used in full
        support = y > 0
        y = torch.where(support, y, implicit.ALMOST_ZERO)
        generator = torch.Generator().manual_seed(0)
        v = 0.5 + torch.rand(y.shape[-1], generator=generator, dtype=y.dtype).to(y.device).expand_as(y)
        product = torch.func.vjp(self.omega.gradient, y)[1]
        expected, found = product(torch.ones_like(y))[0] * v, product(v)[0]
        # Compared entry by entry: large diagonal entries would hide errors in small ones.
        return bool(((expected - found).abs() <= _ROUNDING * expected.abs())[support].all())


class SmoothArgmax(Function):
    """Pi_Omega(x) for a smooth Omega."""

    @staticmethod
    def forward(x: Tensor, keep: Tensor, curved: Curved) -> Tensor:
        scores, kept = _as_rows(x.detach()), _as_rows(keep.expand(x.shape))
        return _solve(curved, scores, kept).reshape(x.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.curved = inputs[2]
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Any:
        return _product(ctx.curved, ctx.saved_tensors[0], v), None, None

    @staticmethod
    @nested_forward_mode
    def jvp(ctx: Any, saved: Any, x_t: Tensor, *_: Any) -> Tensor:
        return _product(ctx.curved, saved[0], x_t)

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, keep: Tensor, curved: Curved) -> Any:
        x = autograd.batch_first(x, in_dims[0], info.batch_size)
        return SmoothArgmax.apply(x, autograd.broadcast_batch(keep, in_dims[1], x), curved), 0


def _as_rows(x: Tensor) -> Tensor:
    return x.reshape(x.shape[:-1].numel(), x.shape[-1])


def _solve(curved: Curved, x: Tensor, keep: Tensor) -> Tensor:
    """Solve centred rows in float64; NaN for rows with NaN or +inf, zeros for rows without kept positions."""
    scores = torch.where(keep, x, -torch.inf).double()
    top = scores.amax(-1, keepdim=True) if x.shape[-1] else scores
    usual = top.isfinite().squeeze(-1) if x.shape[-1] else top.new_zeros(len(x), dtype=torch.bool)
    y = torch.where(keep & ~(top == -torch.inf), torch.nan, 0.0).to(scores)
    if bool(usual.any()):
        kept = keep[usual]
        centred = torch.where(kept, scores[usual] - top[usual], 0.0)
        y[usual] = _solve_usual(curved, centred, kept)
    return y.to(x.dtype)


def _solve_usual(curved: Curved, x: Tensor, keep: Tensor) -> Tensor:
    omega, start = curved.omega, keep / keep.sum(-1, keepdim=True).to(x.dtype)
    _check_value(omega, start)
    curved.separable = curved.separable_at(start)
    problem = interior.Problem(omega.gradient, curved.derivatives)
    size = len(x) if curved.separable else max(1, _CHUNK // x.shape[-1] ** 2)
    parts = [
        interior.solve(problem, x[i : i + size], keep[i : i + size], omega.tol, omega.max_iter)
        for i in range(0, len(x), size)
    ]
    solution = interior.Solution(*(torch.cat(part) for part in zip(*parts, strict=True)))
    _report(omega, solution)
    curved.separable = curved.separable and curved.separable_at(solution.y)
    return solution.y


def _report(omega: SmoothRegularizer, solution: interior.Solution) -> None:
    """Raise if Omega is not convex; warn about rows that did not converge."""
    name, gap = type(omega).__name__, solution.gap
    concave = int((~solution.convex).sum())
    if concave:
        raise ValueError(
            f"`{name}.value(y)` must be convex on the simplex. Got negative curvature in {concave} of {len(gap)} rows: "
            "an entropy is concave and needs a minus sign."
        )
    missed = int((~(gap <= solution.tol)).sum())
    if missed:
        warnings.warn(
            f"`{name}`: {missed} of {len(gap)} rows did not reach tol={omega.tol:g} in max_iter={omega.max_iter} "
            f"steps; the largest duality gap is {float(gap.max()):.2g}. Raise `max_iter` or `tol`.",
            ConvergenceWarning,
            stacklevel=2,
        )


def _check_value(omega: SmoothRegularizer, y: Tensor) -> None:
    result = omega.value(y)
    if not isinstance(result, Tensor) or result.shape != y.shape[:-1]:
        got = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
        raise ValueError(
            f"`{type(omega).__name__}.value(y)` must give one number per row, shape {tuple(y.shape[:-1])}. "
            f"Got {got}: sum along the last dimension."
        )


def _product(curved: Curved, y: Tensor, v: Tensor) -> Tensor:
    weights, directions = _as_rows(y).double(), _as_rows(v).double()
    return implicit.jacobian_product(curved.hessian, weights, directions).reshape(y.shape).to(v.dtype)
