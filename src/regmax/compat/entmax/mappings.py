"""entmax's functions: alpha-entmax is the mapping of the Tsallis entropies."""

from typing import Any

import torch
from torch import Tensor

import regmax.functional as verbs
from regmax.regularizers import NegativeEntropy, Regularizer, SmoothRegularizer, SquaredNorm


class Tsallis(SmoothRegularizer):
    """Omega(y) = (sum_i y_i^alpha - 1) / (alpha (alpha - 1)), whose mapping is alpha-entmax.

    Example:
        >>> import torch
        >>> Tsallis(1.5).value(torch.tensor([0.25, 0.75]))
        tensor(-0.3006)
    """

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha

    def value(self, y: Tensor) -> Tensor:
        return ((y**self.alpha).sum(-1) - 1) / (self.alpha * (self.alpha - 1))

    def gradient(self, y: Tensor) -> Tensor:
        return y ** (self.alpha - 1) / (self.alpha - 1)

    def hessian(self, y: Tensor) -> Tensor:
        return torch.diag_embed(y ** (self.alpha - 2))


def tsallis(call: str, alpha: Any) -> Regularizer:
    """The regularizer of alpha-entmax; at alpha = 1 and alpha = 2 it has a kernel."""
    if isinstance(alpha, Tensor) and (alpha.ndim or alpha.requires_grad):
        raise TypeError(
            f"`{call}` takes one number `alpha` for all rows, which is not learned. Got a tensor of shape "
            f"{tuple(alpha.shape)}. Keep entmax for it, or learn `p` of `regmax.sqpnormmax`."
        )
    if not 1 <= alpha <= 2:
        raise ValueError(f"`{call}` needs `alpha` from 1 (softmax) to 2 (sparsemax). Got {alpha}.")
    ends: dict[float, Regularizer] = {1.0: NegativeEntropy(), 2.0: SquaredNorm()}
    return ends.get(float(alpha)) or Tsallis(float(alpha))


def sparsemax(X: Tensor, dim: int = -1, k: int | None = None) -> Tensor:
    """See `regmax.sparsemax`; `k`, the size of entmax's partial sort, is ignored.

    Example:
        >>> import torch
        >>> sparsemax(torch.tensor([1.0, 0.5, -1.0]), dim=0, k=2)
        tensor([0.7500, 0.2500, 0.0000])
    """
    return verbs.sparsemax(X, dim)


def sparsemax_bisect(X: Tensor, dim: int = -1, n_iter: int = 50, ensure_sum_one: bool = True) -> Tensor:
    """See `regmax.sparsemax`, which is exact; `n_iter` and `ensure_sum_one` are ignored.

    Example:
        >>> import torch
        >>> sparsemax_bisect(torch.tensor([1.0, 0.5, -1.0]), n_iter=5)
        tensor([0.7500, 0.2500, 0.0000])
    """
    return verbs.sparsemax(X, dim)


def entmax15(X: Tensor, dim: int = -1, k: int | None = None) -> Tensor:
    """1.5-entmax, by the general solver; `k`, the size of entmax's partial sort, is ignored.

    Example:
        >>> import torch
        >>> entmax15(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.6740, 0.3260, 0.0000])
    """
    return verbs.regularized_argmax(Tsallis(1.5), X, dim)


def entmax_bisect(
    X: Tensor,
    alpha: float = 1.5,
    dim: int = -1,
    n_iter: int = 50,
    ensure_sum_one: bool = True,
) -> Tensor:
    """alpha-entmax by the general solver, or by a kernel if alpha is 1 (softmax) or 2 (sparsemax).

    Args:
        X: scores.
        alpha: a number from 1 to 2.
        dim: the dimension that is mapped to the simplex.
        n_iter: ignored; the solver stops by its duality gap.
        ensure_sum_one: ignored; weights always sum to 1.

    Returns:
        Weights of the scores' shape and type.

    Example:
        >>> import torch
        >>> entmax_bisect(torch.tensor([1.0, 0.5, -1.0]), alpha=1.25)
        tensor([0.6315, 0.3451, 0.0235])
    """
    return verbs.regularized_argmax(tsallis("entmax_bisect(X, alpha)", alpha), X, dim)
