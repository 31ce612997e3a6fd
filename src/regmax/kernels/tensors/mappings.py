"""`argmax`: the mappings on rows, with deletion."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from regmax.kernels.tensors.chains import Chain, equal_neighbours, equalized, first_values
from regmax.kernels.tensors.owl import oscar_weights, shrink
from regmax.kernels.tensors.pooling import isotonic_decreasing, total_variation
from regmax.kernels.tensors.rows import as_tensor, divided, kept_positions, sort_descending
from regmax.kernels.tensors.simplex import (
    below_peak,
    project_simplex,
    softmax,
    squared_pnorm_argmax,
    tsallis_argmax,
)


def argmax(
    kernel: str,
    x: Tensor,
    keep: Tensor | None = None,
    theta: float | Tensor | None = None,
    *,
    gamma: float | Tensor = 1.0,
) -> Tensor:
    """Return the mapping `kernel` of every row of `x / gamma` (..., d).

    Positions where `keep` is False, and scores of -inf, are deleted: they get zeros and do not influence the rest
    of the row. A row with NaN or +inf is NaN where `keep` is True; a row without kept scores is zero. The cost per row
    is O(d log^2 d) for fusedmax and prox_tv1d (see `pooling`), the same with a much smaller constant for oscarmax and
    prox_oscar, O(d log d) for sparsemax and O(d) for the others.

    Args:
        kernel: one of `regmax.kernels.KERNELS`.
        x: scores, float32 or float64.
        keep: boolean, broadcastable to `x`; None keeps everything.
        theta: the kernel's strength, `lam`, `p` or `alpha`: a number, one per row, or a tensor that
            broadcasts to x[..., :1].
        gamma: positive, given like `theta`.

    >>> argmax("fusedmax", torch.tensor([1.0, 0.9, 0.6]), theta=0.1)
    tensor([0.4000, 0.4000, 0.2000])
    """
    if x.shape[-1] == 0:
        return torch.zeros_like(x)
    if x.dtype == torch.float32 and x.device.type == "cpu":  # float64 is slow or missing on accelerators
        return argmax(kernel, x.double(), keep, theta, gamma=gamma).float()
    allowed = kept_positions(keep, x)
    kept = allowed & (x != -torch.inf)
    spoiled = (kept & ~(x < torch.inf)).any(-1, keepdim=True)  # NaN compares False too
    scores = divided(kernel, torch.where(kept & ~spoiled, x, 0), kept, gamma)
    y = torch.where(kept, _ARGMAX[kernel](scores, kept, as_tensor(theta, x)), 0)
    return torch.where(spoiled & allowed, torch.nan, y)


def _simplex(mapping: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """A mapping that takes deleted positions as scores of -inf."""
    return lambda x, kept, theta: mapping(torch.where(kept, x, -torch.inf), theta)


def _fusedmax(x: Tensor, kept: Tensor, lam: Tensor) -> Tensor:
    """Pool neighbours, then project.

    The threshold tau is at least max - 1 - 2 lam, and a score more than 2 lam below tau belongs to no level set
    above tau, since joining one saves at most two edges. So low scores are raised to max - 2 - 4 lam: the result
    is the same, and rounding does not depend on the scale of the scores.
    """
    x = torch.maximum(below_peak(torch.where(kept, x, -torch.inf)), -2 - 4 * lam)
    chain = Chain(kept)
    z = total_variation(chain.pack(x), lam * chain.edges)
    return chain.unpack(project_simplex(torch.where(chain.occupied, z, -torch.inf)))


def _oscarmax(x: Tensor, lam: Tensor) -> Tensor:
    """Pool neighbours in the order of the scores, then project.

    On the simplex the penalty is sum_k lam (d - k) y_(k); the constant lam d does not change the result and is
    dropped, and with it the number of kept scores. The last value of a pool is at least the pool's mean, which on the
    support exceeds tau >= max - 1 + lam: all scores of the support are above max - 1 - lam (d - 1). Scores below
    max - 2 - lam (d - 1) and deleted positions are set to that.
    """
    d = x.shape[-1]
    x = torch.maximum(below_peak(x), -2 - lam * (d - 1))
    descending, order = sort_descending(x)
    ranks = torch.arange(1, d + 1, device=x.device)
    z = isotonic_decreasing(descending + lam * ranks)
    y = project_simplex(equalized(z, equal_neighbours(descending)))
    return torch.empty_like(y).scatter(-1, order, y)


def _prox_tv1d(x: Tensor, kept: Tensor, lam: Tensor) -> Tensor:
    """Cut the chain at its large steps, and pool every part relative to its first score.

    The forces on a score sum to at most 2 lam, so z stays within 2 lam of x: across a step of more than 4 lam the two
    sides cannot fuse, and the edge pulls with its full force. Within a part neighbours are within 4 lam of each other,
    so distant scores, and scores far from zero, cost no precision.
    """
    chain = Chain(kept)
    packed, edges = chain.pack(x), lam * chain.edges
    steps = packed.diff(dim=-1)
    cut = (steps.abs() > 4 * lam) & chain.edges
    pull = torch.where(cut, edges * steps.sign(), 0)
    origin = first_values(packed, pad(~cut, (1, 0), value=False))
    centred = torch.where(chain.occupied, packed - origin + (pad(pull, (0, 1)) - pad(pull, (1, 0))), 0)
    z = total_variation(centred, torch.where(cut, 0, edges)) + origin
    z = equalized(z, equal_neighbours(packed) & chain.occupied)  # one of two equal scores may be at a cut
    return torch.where(lam > 0, chain.unpack(z), x)


def _prox_oscar(x: Tensor, kept: Tensor, lam: Tensor) -> Tensor:
    return shrink(x, oscar_weights(kept, lam))


_ARGMAX: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "softmax": _simplex(lambda x, _: softmax(x)),
    "sparsemax": _simplex(lambda x, _: project_simplex(x)),
    "fusedmax": _fusedmax,
    "oscarmax": _simplex(_oscarmax),
    "sqpnormmax": _simplex(squared_pnorm_argmax),
    "entmax": _simplex(tsallis_argmax),
    "prox_tv1d": _prox_tv1d,
    "prox_oscar": _prox_oscar,
}
