"""`theta_gradient` and `omega_gradient`: how the mappings change with their strengths.

At the solution x / gamma - grad Omega(y) is constant on the support. Differentiating in theta, with J the Jacobian of
the mapping, dy / dtheta = -J g where g = d/dtheta grad Omega(y): the same product as for the scores. J annihilates
constants, so dy / dgamma = -J x / gamma^2 = -J grad Omega(y) / gamma.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from regmax.kernels.tensors.chains import Chain
from regmax.kernels.tensors.rows import as_tensor, kept_positions


def theta_gradient(
    kernel: str, y: Tensor, keep: Tensor | None = None, theta: float | Tensor | None = None
) -> Tensor:
    """Return g = d/dtheta grad Omega(y) for every row, so that dy / dtheta = -J g; zeros for a kernel without theta.

    For lam, g is one subgradient of the penalty: J averages over groups, inside which it is not unique. For p and
    alpha, g is differentiable in y and the strength. Arguments as in `argmax`.

    >>> theta_gradient("fusedmax", torch.tensor([0.4, 0.4, 0.2]), theta=0.1)
    tensor([ 0.,  1., -1.])
    """
    if y.shape[-1] == 0 or kernel not in _GRADIENT:
        return torch.zeros_like(y)
    kept = kept_positions(keep, y)
    gradient = _GRADIENT[kernel](torch.where(kept, y, 0), kept, as_tensor(theta, y))
    return torch.where(kept, gradient, 0)


def omega_gradient(
    kernel: str, y: Tensor, keep: Tensor | None = None, theta: float | Tensor | None = None
) -> Tensor:
    """Return grad Omega(y) on the support, so that dy / dgamma = -J grad Omega(y) / gamma. Arguments as in `argmax`.

    >>> omega_gradient("fusedmax", torch.tensor([0.4, 0.4, 0.2]), theta=0.1)
    tensor([0.4000, 0.5000, 0.1000])
    """
    if kernel == "sqpnormmax":
        return _squared_pnorm_gradient(torch.where(kept_positions(keep, y), y, 0), as_tensor(theta, y))
    if kernel == "entmax":
        return _tsallis_gradient(torch.where(kept_positions(keep, y), y, 0), as_tensor(theta, y))
    penalty = theta_gradient(kernel, y, keep, theta)
    return y if theta is None else y + as_tensor(theta, y) * penalty


def _total_variation(y: Tensor, kept: Tensor, lam: Tensor) -> Tensor:
    """d sum |y_i+1 - y_i| / dy_i = sign(y_i - y_i-1) - sign(y_i+1 - y_i) along the kept positions."""
    chain = Chain(kept)
    steps = torch.where(chain.edges, chain.pack(y).diff(dim=-1).sign(), 0)
    return chain.unpack(pad(steps, (1, 0)) - pad(steps, (0, 1)))


def _oscar(y: Tensor, kept: Tensor, lam: Tensor) -> Tensor:
    """The k-th largest of n magnitudes has the coefficient n - k."""
    order = torch.where(kept, y.abs(), -1).sort(dim=-1, descending=True, stable=True).indices
    ranks = torch.arange(1, y.shape[-1] + 1, device=y.device)
    weights = (kept.sum(-1, keepdim=True) - ranks).to(y.dtype)
    return y.sign() * torch.empty_like(y).scatter(-1, order, weights)


def _squared_pnorm(y: Tensor, kept: Tensor, p: Tensor) -> Tensor:
    """The derivative in p of grad Omega = y^(p-1) N^(2-p), N = |y|_p, on the support.

    g = grad Omega [ log y - log N + (2 - p) d log N / dp ],  d log N / dp = (sum y^p log y / sum y^p - log N) / p.
    """
    support = y > 0
    # Outside the support logarithms and powers are applied to 1, to avoid infinite derivatives times zero.
    positive = torch.where(support, y, 1)
    logarithm = positive.log()
    power = torch.where(support, positive**p, 0)
    total = power.sum(-1, keepdim=True)
    mass = torch.where(total > 0, total, 1)
    log_norm = mass.log() / p
    slope = ((power * logarithm).sum(-1, keepdim=True) / mass - log_norm) / p
    gradient = _squared_pnorm_gradient(y, p)
    return torch.where(support, gradient * (logarithm - log_norm + (2 - p) * slope), 0)


def _tsallis(y: Tensor, kept: Tensor, alpha: Tensor) -> Tensor:
    """The derivative in alpha of grad Omega = (y^a - 1) / a, up to a constant, a = alpha - 1, on the support.

    With t = a log y it is log(y)^2 h(t), h(t) = d/dt (exp(t) - 1) / t, which is 1/2 at t = 0.
    """
    support = y > 0
    logarithm = torch.where(support, y, 1).log()
    return torch.where(support, logarithm**2 * _slope_of_exponential_ratio((alpha - 1) * logarithm), 0)


def _slope_of_exponential_ratio(t: Tensor) -> Tensor:
    """(t exp(t) - exp(t) + 1) / t^2, by its power series for small t."""
    near = t.abs() < _NEAR
    small, far = torch.where(near, t, 0), torch.where(near, 1, t)
    series = torch.ones_like(t)
    for k in range(_TERMS[t.dtype], 0, -1):
        series = 1 + small * series * ((k + 1) / (k * (k + 2)))
    return torch.where(near, series / 2, (far * far.exp() - far.expm1()) / far**2)


# The series is exact to rounding for |t| < _NEAR; beyond it the closed form loses no digits.
_NEAR, _TERMS = 0.5, {torch.float32: 8, torch.float64: 14}


def _tsallis_gradient(y: Tensor, alpha: Tensor) -> Tensor:
    """(y^a - 1) / a, a = alpha - 1, on the support, which is log y at a = 0."""
    support = y > 0
    logarithm = torch.where(support, y, 1).log()
    a = torch.where(alpha == 1, 1, alpha - 1)
    gradient = torch.where(alpha == 1, logarithm, (a * logarithm).expm1() / a)
    return torch.where(support, gradient, 0)


def _squared_pnorm_gradient(y: Tensor, p: Tensor) -> Tensor:
    """y^(p-1) N^(2-p), N = |y|_p."""
    support = y > 0
    positive = torch.where(support, y, 1)
    total = torch.where(support, positive**p, 0).sum(-1, keepdim=True)
    norm = torch.where(total > 0, total, 1) ** (1 / p)
    return torch.where(support, positive ** (p - 1) * norm ** (2 - p), 0)


_GRADIENT: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "fusedmax": _total_variation,
    "oscarmax": _oscar,
    "sqpnormmax": _squared_pnorm,
    "entmax": _tsallis,
    "prox_tv1d": _total_variation,
    "prox_oscar": _oscar,
}
