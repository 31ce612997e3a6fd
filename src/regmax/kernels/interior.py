"""The general forward: min over the simplex of f(y) = Omega(y) - <x, y>, by a primal-dual interior point method.

The optimality conditions, with s the multipliers of y >= 0 and tau that of sum y = 1:

    grad Omega(y) - x - s + tau 1 = 0,    sum y = 1,    y, s >= 0,    y_i s_i = 0.

Each iteration is a Newton step (Mehrotra's predictor and corrector) on these with y_i s_i = mu, mu falling to 0. The
iterates stay positive, so Omega may be infinitely steep at 0, and about ten steps are enough. Newton's matrix is
H + diag(s / y), H the Hessian of Omega: O(d) per row if H is diagonal (a separable Omega), else O(d^3).

Near the solution small weights are set to 0, and the others take one Newton step on their support. A row stops when
its duality gap, the maximum of <grad f(y), y - e> over the simplex's corners e, is at most `tol` or the rounding error
of the gap; f(y) then exceeds the minimum by at most that. Finished rows are removed from the batch.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from regmax.kernels.newton import CURVATURE, Newton

_TO_BOUNDARY = 0.995  # the largest fraction of the distance to the boundary that a step may take
_HALVINGS = 5  # of a step that increases the merit, because curvature varies along it
_SMALL = 1e-5  # weights below this fraction of the largest may become exact zeros
_NEAR = 1e5  # exact zeros are tried if the gap is within this factor of the tolerance
_DUST = 1e-12  # weights below this fraction of the largest are rounding errors
_CLOSE = 1e-3  # a gap within this factor of the tolerance needs no Newton step on the support
_ROUNDING = 32  # the rounding error of a gap, in units of eps times the size of its terms


class Problem(NamedTuple):
    """The derivatives of Omega that the solver evaluates, row by row."""

    gradient: Callable[[Tensor], Tensor]
    derivatives: Callable[
        [Tensor], tuple[Tensor, Tensor]
    ]  # the gradient, and H (n, d, d) or its diagonal (n, d)


class Solution(NamedTuple):
    """Weights with exact zeros; for every row its gap, the tolerance that applied, and whether Omega was convex."""

    y: Tensor  # (n, d)
    gap: Tensor  # (n,)
    tol: Tensor  # (n,)
    convex: Tensor  # (n,)


def solve(problem: Problem, x: Tensor, keep: Tensor, tol: float, max_iter: int) -> Solution:
    """The minimisers for all rows of `x` (n, d); every row keeps at least one position."""
    n = len(x)
    done = Solution(torch.zeros_like(x), x.new_full((n,), torch.inf), x.new_full((n,), tol), keep.any(-1))
    rows = torch.arange(n, device=x.device)  # the unfinished ones
    state = _State.start(problem, x, keep)
    for i in range(max_iter + 1):
        found, solved = state.finished(problem, tol)
        stop = solved | ~found.convex
        better = stop | (found.gap < done.gap[rows])
        for whole, part in zip(done, found, strict=True):
            whole[rows[better]] = part[better]
        if bool(stop.any()):
            rows, state = rows[~stop], state.select(~stop)
        if i == max_iter or not len(rows):
            break
        state = state.step(problem)
    return done


def duality_gap(slope: Tensor, y: Tensor, keep: Tensor) -> Tensor:
    """The maximum over the simplex's corners e of <slope, y - e>."""
    least = torch.where(keep, slope, torch.inf).amin(-1)
    return torch.where(y != 0, slope * y, 0.0).sum(-1) - least


class _State(NamedTuple):
    """The unfinished rows: y and s are positive where `keep` is True, and 0 and 1 elsewhere."""

    x: Tensor
    keep: Tensor
    y: Tensor
    s: Tensor
    tau: Tensor  # (n, 1)
    gradient: Tensor  # of Omega at y
    hessian: Tensor
    convex: Tensor  # (n,)

    @classmethod
    def start(cls, problem: Problem, x: Tensor, keep: Tensor) -> "_State":
        """A centred point: y_i proportional to 1 / s_i, so that y_i s_i is the same everywhere."""
        count = keep.sum(-1, keepdim=True)
        y = keep.to(x.dtype) / count
        gradient, hessian = problem.derivatives(y)
        newton = Newton(hessian, None, keep)
        slope = torch.where(keep, gradient - x, torch.inf)
        # The slack: the mean change of the slopes if every weight changes by its own size.
        slack = (newton.curvature * y).abs().sum(-1, keepdim=True) / count
        s = torch.where(keep, slope - slope.amin(-1, keepdim=True) + slack.clamp(min=1e-8), 1.0)
        y = torch.where(keep, 1 / s, 0.0)
        y = y / y.sum(-1, keepdim=True)
        gradient, hessian = problem.derivatives(y)
        gradient = torch.where(keep, gradient, 0.0)
        tau = (y * (x - gradient + s)).sum(-1, keepdim=True)
        return cls(x, keep, y, s, tau, gradient, hessian, newton.convex)

    def select(self, rows: Tensor) -> "_State":
        """The state of some of the rows."""
        return _State(*(part[rows] for part in self))

    def finished(self, problem: Problem, tol: float) -> tuple[Solution, Tensor]:
        """The rows as they would be returned now, and which of them are solved."""
        terms = (self.y * (self.gradient.abs() + self.x.abs())).sum(-1)
        enough = (_ROUNDING * torch.finfo(terms.dtype).eps * terms).clamp(min=tol)
        found = Solution(
            self.y.clone(), duality_gap(self.gradient - self.x, self.y, self.keep), enough, self.convex
        )
        solved = torch.zeros_like(self.convex)
        for share, candidate in ((_NEAR, _State._on_support), (_CLOSE, _State._without_dust)):
            near = ((found.gap <= share * enough) & ~solved).nonzero()[:, 0]
            if not len(near):
                break
            y = candidate(self.select(near), problem, enough[near])
            gap = duality_gap(problem.gradient(y) - self.x[near], y, self.keep[near])
            good = gap <= enough[near]
            near = near[good]
            found.y[near], found.gap[near], solved[near] = y[good], gap[good], True
        return found, solved

    def _on_support(self, problem: Problem, slack: Tensor) -> Tensor:
        """Exact zeros for small weights, and a Newton step for the others."""
        small = self.y < _SMALL * self.y.amax(-1, keepdim=True)
        y = self._with_zeros(problem, small, slack)
        gradient, hessian = problem.derivatives(y)
        u, _ = Newton(hessian, None, y > 0).solve(self.x - gradient, torch.zeros_like(self.tau))
        moved = y + u
        # A step that leaves the simplex means that the support is not correct yet.
        inside = (moved > 0) | (y == 0)
        y = torch.where(inside.all(-1, keepdim=True), moved, y)
        return y / y.sum(-1, keepdim=True)

    def _without_dust(self, problem: Problem, slack: Tensor) -> Tensor:
        """Exact zeros for weights that are rounding errors; other small weights stay, too steep for a Newton step."""
        dust = self.y < _DUST * self.y.amax(-1, keepdim=True)
        return self._with_zeros(problem, dust, slack)

    def _with_zeros(self, problem: Problem, small: Tensor, slack: Tensor) -> Tensor:
        """Exact zeros for those small weights that the gradient would not raise again."""
        large = torch.where(small, 0.0, self.y)
        rise = self.x - problem.gradient(large)
        level = torch.where(large > 0, rise * large, 0.0).sum(-1) / large.sum(-1)
        y = torch.where(small & (rise <= (level + slack)[:, None]), 0.0, self.y)
        return y / y.sum(-1, keepdim=True)

    def step(self, problem: Problem) -> "_State":
        """One predictor and corrector step."""
        x, keep, y, s, tau, gradient, hessian, convex = self
        count = keep.sum(-1, keepdim=True)
        ratio = torch.where(keep, s / y, 1.0)
        newton = Newton(hessian, ratio, keep)
        residual = torch.where(keep, gradient - x + tau, 0.0)  # of the first condition, without s
        missing = 1 - y.sum(-1, keepdim=True)
        mu = (y * s).sum(-1, keepdim=True) / count

        dy, _ = newton.solve(-residual, missing)
        ds = -s - ratio * dy
        a = _reach(y, dy, s, ds)
        ahead = ((y + a * dy) * (s + a * ds)).sum(-1, keepdim=True) / count
        target = torch.where(keep, ((ahead / mu) ** 3 * mu - dy * ds) / y, 0.0)

        dy, dtau = newton.solve(target - residual, missing)
        ds = torch.where(keep, target - s - ratio * dy, 0.0)
        step = (dy, ds, dtau, (_TO_BOUNDARY * _reach(y, dy, s, ds)).clamp(max=1.0))
        new = self._moved(problem, *step)
        worse = (~(new.merit() <= 2 * self.merit())).nonzero()[:, 0]
        if len(worse):
            shorter = self.select(worse)._backtracked(problem, *(part[worse] for part in step))
            new = _State(
                *(whole.index_copy(0, worse, part) for whole, part in zip(new, shorter, strict=True))
            )
        rises = _monotone(new.y - y, new.gradient - gradient, gradient)
        return new._replace(convex=convex & newton.convex & rises)

    def _backtracked(self, problem: Problem, dy: Tensor, ds: Tensor, dtau: Tensor, a: Tensor) -> "_State":
        for _ in range(_HALVINGS):
            a = a / 2
            new = self._moved(problem, dy, ds, dtau, a)
            if bool((new.merit() <= self.merit()).all()):
                break
        return new

    def _moved(self, problem: Problem, dy: Tensor, ds: Tensor, dtau: Tensor, a: Tensor) -> "_State":
        y = self.y + a * dy
        gradient, hessian = problem.derivatives(y)
        gradient = torch.where(self.keep, gradient, 0.0)
        return self._replace(
            y=y, s=self.s + a * ds, tau=self.tau + a * dtau, gradient=gradient, hessian=hessian
        )

    def merit(self) -> Tensor:
        """How much the optimality conditions are violated, weighted by y."""
        residual = (self.gradient - self.x + self.tau - self.s).abs() + self.s
        return (self.y * residual).sum(-1)


def _monotone(along: Tensor, change: Tensor, gradient: Tensor) -> Tensor:
    """Whether the gradient is monotone along the step, as that of a convex function, up to rounding."""
    rounding = _ROUNDING * torch.finfo(along.dtype).eps * gradient.abs() + CURVATURE * change.abs()
    return (along * change).sum(-1) >= -(along.abs() * rounding).sum(-1)


def _reach(y: Tensor, dy: Tensor, s: Tensor, ds: Tensor) -> Tensor:
    """The largest step, up to 1 / _TO_BOUNDARY, with y and s at least 0."""
    inverse = torch.maximum((dy / y).nan_to_num_(0.0).neg_(), -ds / s).amax(-1, keepdim=True)
    return 1 / inverse.clamp(min=_TO_BOUNDARY)
