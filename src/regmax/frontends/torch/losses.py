"""The Fenchel-Young loss of rows of tensors, L(x; q) = max_Omega(x) + gamma Omega(q) - <x, q>, and its derivatives.

With y = Pi(x), L = <x, y - q> + gamma (Omega(q) - Omega(y)). By the envelope theorem the derivative through y is zero:
the gradient is y - q in the scores, Omega(q) - Omega(y) in gamma, and so on, as if y were constant. In plain eager mode
`FenchelYoung` uses this, and the first derivative costs no Jacobian product. If the gradient is differentiated again, y
is computed again with its own derivative. Under transforms and compilers autograd differentiates the formula.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from regmax.frontends.torch.modes import is_plain
from regmax.frontends.torch.rows import Rows
from regmax.kernels import KERNELS
from regmax.regularizers import KernelRegularizer, Regularizer

ArgmaxRows = Callable[[Rows], Tensor]


class Problem(NamedTuple):
    """A loss, apart from its tensors: `target` is a class index (..., 1), or a distribution (..., d)."""

    omega: Regularizer
    argmax_rows: ArgmaxRows
    rows: Rows

    def value(self, y: Tensor, keep: Tensor | None, theta: Any) -> Tensor:
        """Omega(y), (..., 1)."""
        if isinstance(self.omega, KernelRegularizer):
            return self.omega.with_theta(theta).value(y, keep)[..., None]
        return self.omega.value(y)[..., None]

    def target_value(self, target: Tensor, like: Tensor, keep: Tensor | None, theta: Any) -> Tensor:
        """Omega of the target, (..., 1)."""
        if target.is_floating_point():
            return self.value(target, keep, theta)
        if isinstance(self.omega, KernelRegularizer) and KERNELS[self.omega.kernel].groups == "none":
            # Zeros do not count, so a row of one class is enough.
            return self.value(like.new_ones(*target.shape[:-1], 1), None, theta)
        return self.value(torch.zeros_like(like).scatter(-1, target, 1.0), keep, theta)


def fenchel_young(problem: Problem, target: Tensor) -> Tensor:
    """One loss for each row, (..., 1)."""
    x, gamma, theta = problem.rows.x, problem.rows.gamma, problem.rows.theta
    if not is_plain(x):
        return loss_of(problem, problem.rows, problem.argmax_rows(problem.rows), target)
    loss, y = FenchelYoung.apply(x, target, gamma, theta, problem)
    if isinstance(problem.omega, KernelRegularizer) or not torch.is_grad_enabled():
        return loss
    # Learned parameters of a user's Omega: zero, with their first derivative.
    own = problem.value(target.detach(), None, None) if target.is_floating_point() else 0.0
    own = own - problem.value(y, None, None)
    if not own.requires_grad:
        return loss
    if not target.is_floating_point():
        own = own + problem.target_value(target, y, None, None)
    gamma = gamma.detach() if isinstance(gamma, Tensor) else gamma
    return loss + gamma * (own - own.detach())


def loss_of(problem: Problem, rows: Rows, y: Tensor, target: Tensor) -> Tensor:
    """L, given y = Pi(x), as <x - top, y - q> + gamma (Omega(q) - Omega(y)), (..., 1).

    It is infinite if a deleted position, whose score is -inf, has weight in the target.
    """
    centred, kept = _centred(rows)
    entropy = problem.target_value(target, y, kept, rows.theta) - problem.value(y, kept, rows.theta)
    if target.is_floating_point():
        forbidden = ((target != 0) & ~kept).any(-1, keepdim=True)
        inner = (centred * (y - target)).sum(-1, keepdim=True)
    else:
        forbidden = ~kept.gather(-1, target)
        inner = (centred * y).sum(-1, keepdim=True) - centred.gather(-1, target)
    loss = inner + rows.gamma * entropy
    # Not below 0, which it is by rounding; not by `clamp`, which has no gradient there.
    loss = torch.where(loss.detach() < 0, loss - loss.detach(), loss)
    return loss + torch.where(forbidden, torch.inf, 0.0)


def _centred(rows: Rows) -> tuple[Tensor, Tensor]:
    """x - max(x) at the kept positions and 0 elsewhere, and which ones are kept."""
    x = rows.x
    kept = x.detach() != -torch.inf
    kept = kept if rows.keep is None else kept & rows.keep
    top = x.detach().masked_fill(~kept, -torch.inf).amax(-1, keepdim=True)
    centred = torch.where(kept, x - top, 0.0)
    # A difference that overflows must stay finite: its weight is zero.
    return centred.clamp(min=torch.finfo(x.dtype).min), kept


class FenchelYoung(Function):
    """The losses (..., 1), and y = Pi(x), in plain eager mode; gamma and theta are numbers or tensors."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, target: Tensor, gamma: Any, theta: Any, problem: Problem
    ) -> tuple[Tensor, Tensor]:
        y = problem.argmax_rows(problem.rows)
        loss = loss_of(problem, problem.rows, y, target)
        tensors = [value if isinstance(value, Tensor) else None for value in (gamma, theta)]
        # Tensors are kept as saved tensors only.
        ctx.numbers = tuple(None if isinstance(value, Tensor) else value for value in (gamma, theta))
        empty = problem.rows._replace(x=x.new_empty(0), gamma=None, theta=None)
        ctx.problem = problem._replace(rows=empty)
        ctx.save_for_backward(x, target, y, *tensors)
        ctx.mark_non_differentiable(y)
        ctx.set_materialize_grads(False)
        return loss, y

    @staticmethod
    def backward(ctx: Any, loss_grad: Tensor | None, *_: Any) -> Any:
        if loss_grad is None:
            return None, None, None, None, None
        x, target, y, *tensors = ctx.saved_tensors
        gamma, theta = (
            number if tensor is None else tensor for number, tensor in zip(ctx.numbers, tensors, strict=True)
        )
        problem: Problem = ctx.problem
        rows = problem.rows._replace(x=x, gamma=gamma, theta=theta)
        if torch.is_grad_enabled():
            y = problem.argmax_rows(rows)
        x_grad = loss_grad * difference(rows, y, target) if ctx.needs_input_grad[0] else None
        wanted = ctx.needs_input_grad[1:4]
        others = (
            _explicit_gradients(problem, rows, y, target, wanted, loss_grad) if any(wanted) else [None] * 3
        )
        return x_grad, *others, None


def difference(rows: Rows, y: Tensor, target: Tensor) -> Tensor:
    """y - q at the kept positions, 0 at deleted ones."""
    if target.is_floating_point():
        return y - target.masked_fill(~_centred(rows)[1], 0.0)
    kept = rows.x.detach().gather(-1, target) != -torch.inf
    if rows.keep is not None:
        kept = kept & rows.keep.expand(rows.x.shape).gather(-1, target)
    return y.scatter_add(-1, target, -kept.to(y.dtype))


def _explicit_gradients(
    problem: Problem, rows: Rows, y: Tensor, target: Tensor, wanted: tuple[bool, ...], loss_grad: Tensor
) -> list[Tensor | None]:
    """The gradients of the target, gamma and theta with y and x as constants."""
    again = torch.is_grad_enabled()
    inputs = (target, rows.gamma, rows.theta)
    with torch.enable_grad():
        # Aliases: gamma and theta also determine y, and that path has no gradient.
        q, gamma, theta = (
            (value.view_as(value) if again else value.detach().requires_grad_()) if want else value
            for value, want in zip(inputs, wanted, strict=True)
        )
        centred, kept = _centred(rows)
        explicit = gamma * (problem.target_value(q, y, kept, theta) - problem.value(y, kept, theta))
        if wanted[0]:
            explicit = explicit - (centred * q).sum(-1, keepdim=True)
        parts = [value for value, want in zip((q, gamma, theta), wanted, strict=True) if want]
        found = iter(torch.autograd.grad(explicit, parts, loss_grad, create_graph=again, allow_unused=True))
    return [next(found) if want else None for want in wanted]
