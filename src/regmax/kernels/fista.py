"""The general forward: min over the simplex of f(y) = Omega(y) - <x, y>, by projected gradient steps with momentum.

FISTA (Beck and Teboulle) with backtracking per row, a restart of the momentum wherever it points uphill, and
extrapolated points pulled back into the simplex, because Omega need not exist outside of it. It finds the support in
few steps, but crawls where Omega is steep near the boundary; so now and then a few Newton steps on the support are
tried, and kept where they help. A row stops when its duality gap, the maximum of <grad f(y), y - s> over the simplex,
is at most `tol`: f(y) is then within `tol` of the minimum.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Rowwise = Callable[[Tensor], Tensor]
Newton = Callable[[Tensor, Tensor], Tensor]  # weights and a residual -> J residual
Project = Callable[
    [Tensor, Tensor], Tensor
]  # scores and the positions kept -> the nearest point of the simplex


_NEWTON_EVERY = 10
_NEWTON_STEPS = 6


class Problem(NamedTuple):
    """What the solver may ask about Omega, row by row, and how to project."""

    value: Rowwise
    gradient: Rowwise
    newton: Newton
    project: Project


def solve(problem: Problem, x: Tensor, keep: Tensor, tol: float, max_iter: int) -> tuple[Tensor, Tensor]:
    """The minimisers for all rows of `x` (n, d), and their duality gaps."""
    y = keep.to(x.dtype) / keep.sum(-1, keepdim=True).clamp(min=1)
    gap = x.new_full((x.shape[0],), torch.inf)
    rows = torch.arange(x.shape[0], device=x.device)  # those that have not stopped
    state = _State(problem, x, keep, y)
    for i in range(max_iter):
        if not len(rows):
            break
        state.step()
        if i % _NEWTON_EVERY == _NEWTON_EVERY - 1:
            state.polish()
        y[rows], gap[rows] = state.y, state.gap(state.y)
        running = ~(gap[rows] <= tol)
        if not bool(running.all()):
            rows, state = rows[running], state.select(running)
    return y, gap


class _State:
    """The rows that still run: iterate y, extrapolated point w, momentum t, curvature bound L."""

    def __init__(self, problem: Problem, x: Tensor, keep: Tensor, y: Tensor) -> None:
        self.problem, self.x, self.keep, self.y, self.w = problem, x, keep, y, y
        self.t = x.new_ones(x.shape[0], 1)
        self.L = x.new_ones(x.shape[0], 1)

    def select(self, running: Tensor) -> "_State":
        """The state of some of the rows."""
        part = _State(self.problem, self.x[running], self.keep[running], self.y[running])
        part.w, part.t, part.L = self.w[running], self.t[running], self.L[running]
        return part

    def gap(self, y: Tensor) -> Tensor:
        """The maximum over the simplex's corners s of <grad f(y), y - s>."""
        slope = self.problem.gradient(y) - self.x
        least = torch.where(self.keep, slope, torch.inf).amin(-1)
        return torch.where(self.keep, slope * y, 0.0).sum(-1) - least

    def step(self) -> None:
        """One projected gradient step from w, then the extrapolation."""
        y = self._descend()
        move = y - self.y
        t = (1 + (1 + 4 * self.t**2).sqrt()) / 2
        w = (y + (self.t - 1) / t * move).clamp(min=0)
        uphill = ((self.w - y) * move).sum(-1, keepdim=True) > 0
        self.w = torch.where(uphill, y, w / w.sum(-1, keepdim=True))
        self.t, self.y = torch.where(uphill, 1.0, t), y

    def _descend(self) -> Tensor:
        """Project w - grad / L, with L doubled until the quadratic bound holds, and let down a little each time."""
        value, project = self.problem.value, self.problem.project
        slope, start = self.problem.gradient(self.w), value(self.w)[:, None]
        self.L = self.L * 0.9
        for _ in range(60):
            y = project(self.w - (slope - self.x) / self.L, self.keep)
            move = y - self.w
            bound = (
                start
                + (slope * move).sum(-1, keepdim=True)
                + self.L / 2 * (move * move).sum(-1, keepdim=True)
            )
            # Rounding must not double L without end: near the minimum both sides agree to the last digits.
            steep = value(y)[:, None] > bound + 1e-14 * (1 + start.abs())
            if not bool(steep.any()):
                break
            self.L = torch.where(steep, self.L * 2, self.L)
        return y

    def polish(self) -> None:
        """Newton steps on the support, as far as the simplex goes; rows whose gap does not fall stay as they were."""
        y = self.y
        for _ in range(_NEWTON_STEPS):
            u = self.problem.newton(y, self.x - self.problem.gradient(y))
            reach = torch.where(u < 0, -y / u, torch.inf).amin(-1, keepdim=True)
            y = (y + (0.99 * reach).clamp(max=1.0) * u).clamp(min=0)
            y = y / y.sum(-1, keepdim=True)
        better = (self.gap(y) < self.gap(self.y))[:, None]
        self.y = torch.where(better, y, self.y)
        self.w, self.t = torch.where(better, y, self.w), torch.where(better, 1.0, self.t)
