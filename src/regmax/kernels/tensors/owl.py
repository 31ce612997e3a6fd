"""The proximal operator of the ordered weighted L1 norm, sum_k weights_k |z|_(k) with |z| sorted decreasing.

Sort |x| decreasing, subtract the weights, pool adjacent violators, clamp at zero, restore order and signs. OSCAR is the
case weights_k = lam (d - k). A zero, and so a deleted position, never changes the others: it is sorted after them and
never joins a pool with a positive mean.
"""

import torch
from torch import Tensor

from regmax.kernels.tensors.chains import Runs, equal_neighbours
from regmax.kernels.tensors.pooling import isotonic_decreasing
from regmax.kernels.tensors.rows import sort_descending


def prox_owl(x: Tensor, weights: Tensor) -> Tensor:
    """Return argmin_z 1/2 |z - x|^2 + sum_k weights_k |z|_(k) for every row of `x` (..., d).

    `weights`, (d,) or one such row for every row, are nonincreasing and nonnegative. A row that is not finite
    gives NaN.

    >>> prox_owl(torch.tensor([3.0, -2.8, 0.5]), torch.tensor([1.0, 0.5, 0.0]))
    tensor([ 2.1500, -2.1500,  0.5000])
    """
    if x.shape[-1] == 0:
        return torch.zeros_like(x)
    finite = x.isfinite().all(-1, keepdim=True)
    return torch.where(finite, shrink(torch.where(finite, x, 0), weights.to(x.dtype)), torch.nan)


def prox_owl_jacobian_product(z: Tensor, v: Tensor, weights: Tensor) -> Tensor:
    """Return J v for every row, with J the (symmetric) Jacobian of `prox_owl` at the scores whose result is `z`.

    >>> z, weights = torch.tensor([2.15, -2.15, 0.5]), torch.tensor([1.0, 0.5, 0.0])
    >>> prox_owl_jacobian_product(z, torch.tensor([1.0, 3.0, 7.0]), weights)
    tensor([-1.,  1.,  7.])
    """
    if z.shape[-1] == 0:
        return torch.zeros_like(v)
    spoiled = z.isnan().any(-1, keepdim=True)
    product = shrink_product(torch.where(spoiled, 0, z), v, weights.to(z.dtype))
    return torch.where(spoiled, torch.nan, product)


def oscar_weights(kept: Tensor, lam: Tensor) -> Tensor:
    """Return lam (n - k) for the n kept positions of every row, k = 1, ..., n, and zeros after them."""
    ranks = torch.arange(1, kept.shape[-1] + 1, device=kept.device)
    return lam * (kept.sum(-1, keepdim=True) - ranks).clamp(min=0)


def shrink(x: Tensor, weights: Tensor) -> Tensor:
    """`prox_owl` on finite rows; `weights` may differ between rows."""
    descending, order = sort_descending(x.abs())
    pooled = isotonic_decreasing(descending - weights).clamp(min=0)
    magnitude = torch.empty_like(x).scatter(-1, order, pooled)
    return torch.where(magnitude > 0, magnitude * torch.sign(x), 0)


def shrink_product(z: Tensor, v: Tensor, weights: Tensor) -> Tensor:
    """Positions with equal |z| move together, by the mean of their outward moves; zeros do not move.

    But if the weights at a group's ranks are all equal, the penalty is separable there and its positions move
    independently, as do zeros of weight zero. The weights do not increase, so comparing a group's first and last is
    enough.
    """
    magnitude, order = z.abs().sort(dim=-1, descending=True, stable=True)
    runs = Runs(equal_neighbours(magnitude))
    sign, v = z.sign().gather(-1, order), v.gather(-1, order)
    weights = weights.expand_as(z)
    greatest, least = weights.gather(-1, runs.first), weights.gather(-1, runs.last)
    alone = (greatest == least) & ((magnitude > 0) | (greatest == 0))
    product = torch.where(alone, v, sign * runs.means(sign * v))
    return torch.empty_like(product).scatter(-1, order, product)
