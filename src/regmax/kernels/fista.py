"""The general forward: min over the simplex of Omega(y) - <x, y>, by projected gradient steps with momentum.

FISTA (Beck and Teboulle) with backtracking per row, a restart of the momentum wherever it points uphill, and
extrapolated points pulled back into the simplex, because Omega need not exist outside of it. A row stops when its
duality gap, max_s <grad f(y), y - s> over the simplex, is at most `tol`: f(y) is then within `tol` of the minimum.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Rowwise = Callable[[Tensor], Tensor]
Project = Callable[[Tensor, Tensor], Tensor]  # scores and the positions kept -> the nearest point of the simplex


def solve(
    value: Rowwise, gradient: Rowwise, x: Tensor, keep: Tensor, project: Project, tol: float, max_iter: int
) -> tuple[Tensor, Tensor]:
    """The minimisers for all rows of `x` (n, d), and their duality gaps."""
    y = keep.to(x.dtype) / keep.sum(-1, keepdim=True).clamp(min=1)
    gap = x.new_full((x.shape[0],), torch.inf)
    rows = torch.arange(x.shape[0], device=x.device)  # those that have not stopped
    state = _State(x, keep, y)
    for _ in range(max_iter):
        if not len(rows):
            break
        state.step(value, gradient, project)
        state_gap = state.gap(gradient)
        y[rows], gap[rows] = state.y, state_gap
        running = state_gap > tol
        if not bool(running.all()):
            rows, state = rows[running], state.select(running)
    return y, gap


class _State:
    """The rows that still run: iterate y, extrapolated point w, momentum t, curvature bound L."""

    def __init__(self, x: Tensor, keep: Tensor, y: Tensor) -> None:
        self.x, self.keep, self.y, self.w = x, keep, y, y
        self.t = x.new_ones(x.shape[0], 1)
        self.L = x.new_ones(x.shape[0], 1)

    def select(self, running: Tensor) -> "_State":
        """The state of some of the rows."""
        part = _State(self.x[running], self.keep[running], self.y[running])
        part.w, part.t, part.L = self.w[running], self.t[running], self.L[running]
        return part

    def step(self, value: Rowwise, gradient: Rowwise, project: Project) -> None:
        """One projected gradient step from w, then the extrapolation."""
        y = self._descend(value, gradient, project)
        move = y - self.y
        t = (1 + (1 + 4 * self.t**2).sqrt()) / 2
        w = self._feasible(y + (self.t - 1) / t * move)
        uphill = ((self.w - y) * move).sum(-1, keepdim=True) > 0
        self.w, self.t, self.y = torch.where(uphill, y, w), torch.where(uphill, 1.0, t), y

    def _descend(self, value: Rowwise, gradient: Rowwise, project: Project) -> Tensor:
        """Project w - grad / L, with L doubled until the quadratic bound holds, and let down a little each time."""
        slope, start = gradient(self.w), value(self.w)[:, None]
        self.L = self.L * 0.9
        for _ in range(60):
            y = project(self.w - (slope - self.x) / self.L, self.keep)
            move = y - self.w
            bound = start + (slope * move).sum(-1, keepdim=True) + self.L / 2 * (move * move).sum(-1, keepdim=True)
            # Rounding must not double L without end: near the minimum both sides agree to the last digits.
            slack = 1e-14 * (1 + start.abs())
            steep = value(y)[:, None] > bound + slack
            if not bool(steep.any()):
                break
            self.L = torch.where(steep, self.L * 2, self.L)
        return y

    def _feasible(self, w: Tensor) -> Tensor:
        w = w.clamp(min=0)
        return w / w.sum(-1, keepdim=True)

    def gap(self, gradient: Rowwise) -> Tensor:
        """max over the simplex's corners of <grad f(y), y - corner>."""
        slope = gradient(self.y) - self.x
        least = torch.where(self.keep, slope, torch.inf).amin(-1)
        return torch.where(self.keep, slope * self.y, 0.0).sum(-1) - least
