"""`jacobian_product`: J v from the result y, in differentiable operations.

Linear in `v` throughout. The Jacobians of softmax, sqpnormmax and entmax vary smoothly with y (and p or alpha), and
autograd can differentiate their products with respect to them as often as needed; the others are constant between the
kinks.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from regmax.arrays import NUMBER
from regmax.kernels.tensors.chains import Chain, Runs, equal_neighbours
from regmax.kernels.tensors.owl import oscar_weights, shrink_product
from regmax.kernels.tensors.rows import as_tensor, kept_positions


def jacobian_product(
    kernel: str,
    y: Tensor,
    v: Tensor,
    keep: Tensor | None = None,
    theta: float | Tensor | None = None,
    *,
    gamma: float | Tensor = 1.0,
) -> Tensor:
    """Return J v / gamma for every row, with J the Jacobian of `kernel` at the scores whose result is `y`.

    The support is where y > 0, and with theta > 0 equal neighbours belong to one group. A row of `y` with NaN gives
    NaN where `keep` is True. Arguments as in `argmax`.

    >>> jacobian_product("fusedmax", torch.tensor([0.4, 0.4, 0.2]), torch.tensor([3.0, 1.0, 5.0]), theta=0.1)
    tensor([-1., -1.,  2.])
    """
    if y.shape[-1] == 0:
        return torch.zeros_like(v)
    kept = kept_positions(keep, y)
    spoiled = (y.isnan() & kept).any(-1, keepdim=True)
    y, v = torch.where(kept & ~spoiled, y, 0), torch.where(kept, v, 0)
    product = torch.where(kept, _PRODUCT[kernel](y, v, kept, as_tensor(theta, y)), 0)
    product = torch.where(spoiled & kept, torch.nan, product)
    # No division by 1: it would enlarge the graph of a second derivative.
    return product if isinstance(gamma, NUMBER) and gamma == 1 else product / as_tensor(gamma, y)


def _softmax(y: Tensor, v: Tensor) -> Tensor:
    return y * (v - (y * v).sum(-1, keepdim=True))


def _sparsemax(y: Tensor, v: Tensor) -> Tensor:
    support = y > 0
    size = support.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(support, v - torch.where(support, v, 0).sum(-1, keepdim=True) / size, 0)


def _fusedmax(y: Tensor, v: Tensor, kept: Tensor, lam: Tensor) -> Tensor:
    return _sparsemax(y, _prox_tv1d(y, v, kept, lam))


def _oscarmax(y: Tensor, v: Tensor, lam: Tensor) -> Tensor:
    descending, order = y.sort(dim=-1, descending=True, stable=True)
    means = Runs(equal_neighbours(descending)).means(v.gather(-1, order))
    means = torch.empty_like(means).scatter(-1, order, means)
    return _sparsemax(y, torch.where(lam > 0, means, v))


def _sqpnormmax(y: Tensor, v: Tensor, p: Tensor) -> Tensor:
    """J = M - M1 1'M / 1'M1, M the inverse of the Hessian of |y|_p^2 / 2 on the support.

    M = [ N^(p-2) diag(y^(2-p)) - (2 - p) N^(-2) y y' ] / (p - 1), N = |y|_p.
    """
    support = y > 0
    # Outside the support the powers are applied to 1, to avoid infinite derivatives times zero, and then dropped.
    positive = torch.where(support, y, 1)
    empty = ~support.any(-1, keepdim=True)
    mass = torch.where(support, positive**p, 0).sum(-1, keepdim=True)
    norm = torch.where(empty, 1, mass) ** (1 / p)
    diagonal = torch.where(support, norm ** (p - 2) * positive ** (2 - p), 0)

    def inverse_hessian(u: Tensor) -> Tensor:
        return (diagonal * u - (2 - p) * norm**-2 * y * (y * u).sum(-1, keepdim=True)) / (p - 1)

    ones, straight = inverse_hessian(torch.ones_like(y)), inverse_hessian(v)
    total = torch.where(empty, 1, ones.sum(-1, keepdim=True))
    return straight - ones * (straight.sum(-1, keepdim=True) / total)


def _entmax(y: Tensor, v: Tensor, alpha: Tensor) -> Tensor:
    """J = diag(s) - s s' / sum s, s = y^(2 - alpha) on the support."""
    support = y > 0
    s = torch.where(support, torch.where(support, y, 1) ** (2 - alpha), 0)
    total = s.sum(-1, keepdim=True)
    mean = (s * v).sum(-1, keepdim=True) / torch.where(total > 0, total, 1)
    return s * (v - mean)


def _prox_tv1d(z: Tensor, v: Tensor, kept: Tensor, lam: Tensor) -> Tensor:
    chain = Chain(kept)
    joined = equal_neighbours(chain.pack(z)) & chain.occupied
    return torch.where(lam > 0, chain.unpack(Runs(joined).means(chain.pack(v))), v)


def _prox_oscar(z: Tensor, v: Tensor, kept: Tensor, lam: Tensor) -> Tensor:
    return shrink_product(z, v, oscar_weights(kept, lam))


_PRODUCT: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "softmax": lambda y, v, kept, theta: _softmax(y, v),
    "sparsemax": lambda y, v, kept, theta: _sparsemax(y, v),
    "fusedmax": _fusedmax,
    "oscarmax": lambda y, v, kept, theta: _oscarmax(y, v, theta),
    "sqpnormmax": lambda y, v, kept, theta: _sqpnormmax(y, v, theta),
    "entmax": lambda y, v, kept, theta: _entmax(y, v, theta),
    "prox_tv1d": _prox_tv1d,
    "prox_oscar": _prox_oscar,
}
