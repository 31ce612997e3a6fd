"""What no kernel of regmax computes: entmax outside [1, 2], normmax, and budgets, each by a bracketed scalar root.

Rows lie along the last dimension. Gradients follow from the optimality conditions at the result, in differentiable
operations.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from regmax.kernels import tensors

_HALVINGS = 128  # of a bracket, at most: it stops at neighbouring numbers


def bisected(excess: Any, low: Tensor, high: Tensor) -> Tensor:
    """The root of a function that is positive at `low` and not at `high`, one per row."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if bool(((middle <= low) | (middle >= high)).all()):
            break
        above = excess(middle) > 0
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return high


class Entmax(Function):
    """y = ((alpha - 1) x - tau)_+^(1 / (alpha - 1)) for any alpha > 0 but 1, for which there is a kernel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, alpha: Tensor) -> Tensor:
        y = _entmax(x, alpha)
        ctx.save_for_backward(y, alpha)
        return y

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Any:
        y, alpha = ctx.saved_tensors
        x_grad = tensors.jacobian_product("entmax", y, v, None, alpha)
        alpha_grad = None
        if ctx.needs_input_grad[1]:
            slope = tensors.theta_gradient("entmax", y, None, alpha)
            alpha_grad = -(x_grad * slope).sum(-1, keepdim=True)
        return x_grad, alpha_grad


def _entmax(x: Tensor, alpha: Tensor) -> Tensor:
    """With a = alpha - 1, u the largest weight, t = -log u in [0, log d] and m = u^a, y = u (1 - a gap / m)_+^(1/a).

    The logarithm of the sum of these ratios minus t decreases in t, whatever the sign of a.
    """
    a = alpha - 1
    peak = x.amax(-1, keepdim=True)
    gap = torch.where(peak > -torch.inf, peak - x, 0.0)
    present = x > -torch.inf

    def ratios(t: Tensor) -> Tensor:
        share = a * gap * (a * t).exp()
        inside = present & (share < 1)
        return torch.where(inside, ((-torch.where(inside, share, 0.0)).log1p() / a).exp(), 0.0)

    low = torch.zeros_like(peak + alpha)
    high = low + present.sum(-1, keepdim=True).clamp(min=1).to(x.dtype).log()
    r = ratios(bisected(lambda t: ratios(t).sum(-1, keepdim=True).log() - t, low, high))
    return r / r.sum(-1, keepdim=True).clamp(min=1e-30)


class Normmax(Function):
    """argmax over the simplex of <x, y> - ||y||_alpha, alpha > 0 but 1; for alpha < 1 a stationary point."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, alpha: Tensor) -> Tensor:
        y = _normmax(x, alpha)
        ctx.save_for_backward(y, alpha)
        return y

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Any:
        y, alpha = ctx.saved_tensors
        x_grad = _normmax_product(y, alpha, v)
        alpha_grad = None
        if ctx.needs_input_grad[1]:
            alpha_grad = -(x_grad * _norm_gradient_slope(y, alpha)).sum(-1, keepdim=True)
        return x_grad, alpha_grad


def _normmax(x: Tensor, alpha: Tensor) -> Tensor:
    """y is proportional to w = (m - gap)_+^(1 / (alpha - 1)), and m makes ||w||_alpha = 1.

    The largest w lies between d^(-1/alpha) and 1; for alpha < 1 it belongs to the largest gap.
    """
    a = alpha - 1
    peak = x.amax(-1, keepdim=True)
    present = x > -torch.inf
    gap = torch.where(present, peak - torch.where(present, x, 0.0), torch.inf)
    first = torch.where(a > 0, 0.0, torch.where(present, gap, 0.0).amax(-1, keepdim=True))

    def powers(m: Tensor, exponent: Tensor) -> Tensor:
        inside = present & (gap < m)
        return torch.where(inside, torch.where(inside, m - gap, 1.0) ** exponent, 0.0)

    def excess(m: Tensor) -> Tensor:
        norm = powers(m, alpha / a).sum(-1, keepdim=True)
        return torch.where(a > 0, 1 - norm, norm - 1)

    if bool((a > 0).all()):
        m = _newton(gap, present, a, torch.ones_like(first + alpha))
        w = powers(m, 1 / a)
        return w / w.sum(-1, keepdim=True).clamp(min=1e-30)
    count = present.sum(-1, keepdim=True).clamp(min=1).to(x.dtype)
    ends = first + count ** (-a / alpha), first + torch.ones_like(count + alpha)
    low, high = torch.minimum(*ends), torch.maximum(*ends)
    w = powers(bisected(excess, low * (1 - 1e-6), high * (1 + 1e-6)), 1 / a)
    return w / w.sum(-1, keepdim=True).clamp(min=1e-30)


def _newton(gap: Tensor, present: Tensor, a: Tensor, m: Tensor) -> Tensor:
    """The root m of ||(m - gap)_+||_q = 1, q = 1 + 1/a: the norm is convex, and at least 1 at m = 1."""
    power = 1 + 1 / a
    for _ in range(_HALVINGS):
        inside = present & (gap < m)
        z = torch.where(inside, m - gap, 1.0)
        w = torch.where(inside, z ** (1 / a), 0.0)
        total = (w * z).sum(-1, keepdim=True)
        norm = total ** (1 / power)
        lower = m - (norm - 1) * total / (norm * w.sum(-1, keepdim=True))
        if not bool((lower < m).any()):
            break
        m = torch.minimum(lower, m)
    return m


def _on_support(y: Tensor, exponent: Tensor) -> Tensor:
    return torch.where(y > 0, torch.where(y > 0, y, 1.0) ** exponent, 0.0)


def _normmax_product(y: Tensor, alpha: Tensor, v: Tensor) -> Tensor:
    """J = N^(alpha-1) / (alpha - 1) [diag(b) - b y' - y b' + y y' sum b], b = y^(2-alpha) and N = ||y||_alpha.

    The norm's Hessian annihilates y: moves along y follow from the constraint that weights sum to one.
    """
    b = _on_support(y, 2 - alpha)
    norm = _on_support(y, alpha).sum(-1, keepdim=True) ** ((alpha - 1) / alpha)
    centred = v - (y * v).sum(-1, keepdim=True)
    straight = b * centred
    return norm / (alpha - 1) * (straight - y * straight.sum(-1, keepdim=True))


def _norm_gradient_slope(y: Tensor, alpha: Tensor) -> Tensor:
    """The derivative in alpha of the norm's gradient (y / N)^(alpha-1)."""
    logarithm = torch.where(y > 0, y, 1.0).log()
    power = _on_support(y, alpha)
    total = power.sum(-1, keepdim=True)
    log_norm = total.log() / alpha
    slope = ((power * logarithm).sum(-1, keepdim=True) / total - log_norm) / alpha
    gradient = _on_support(y, alpha - 1) * (-(alpha - 1) * log_norm).exp()
    return gradient * (logarithm - log_norm - (alpha - 1) * slope)


class Budget(Function):
    """The projection onto 0 <= y <= 1, sum y = budget: y = clip(x - tau, 0, 1)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, budget: Tensor) -> Tensor:
        y = _budget(x, budget)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Any:
        (y,) = ctx.saved_tensors
        free = (y > 0) & (y < 1)
        size = free.sum(-1, keepdim=True).clamp(min=1)
        mean = torch.where(free, v, 0.0).sum(-1, keepdim=True) / size
        return torch.where(free, v - mean, 0.0), mean


def _budget(x: Tensor, budget: Tensor) -> Tensor:
    low, high = x.amin(-1, keepdim=True) - 1, x.amax(-1, keepdim=True)
    tau = bisected(
        lambda tau: (x - tau).clamp(0, 1).sum(-1, keepdim=True) - budget, low + 0 * budget, high + 0 * budget
    )
    # The sets that bisection found give the threshold to rounding.
    free, full = (x > tau) & (x < tau + 1), x >= tau + 1
    size = free.sum(-1, keepdim=True)
    exact = (
        torch.where(free, x, 0.0).sum(-1, keepdim=True) + full.sum(-1, keepdim=True) - budget
    ) / size.clamp(min=1)
    y = (x - torch.where(size > 0, exact, tau)).clamp(0, 1)
    return torch.where(budget <= 0, 0.0, torch.where(budget >= x.shape[-1], 1.0, y))
