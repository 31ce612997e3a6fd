"""entmax's functions: alpha-entmax by regmax's kernels, the others by scalar roots."""

from typing import Any

import torch
from torch import Tensor

import regmax.functional as verbs
from regmax.compat.entmax import roots


def sparsemax(X: Tensor, dim: int = -1, k: int | None = None, return_support_size: bool = False) -> Any:
    """See `regmax.sparsemax`; `k`, the size of entmax's partial sort, is ignored.

    With `return_support_size`, the weights and the number of nonzero ones, with size 1 along `dim`.

    Example:
        >>> import torch
        >>> sparsemax(torch.tensor([1.0, 0.5, -1.0]), dim=0, k=2, return_support_size=True)
        (tensor([0.7500, 0.2500, 0.0000]), tensor([2]))
    """
    return _with_support(verbs.sparsemax(X, dim), dim, return_support_size)


def sparsemax_bisect(X: Tensor, dim: int = -1, n_iter: int = 50, ensure_sum_one: bool = True) -> Tensor:
    """See `regmax.sparsemax`, which is exact; `n_iter` and `ensure_sum_one` are ignored.

    Example:
        >>> import torch
        >>> sparsemax_bisect(torch.tensor([1.0, 0.5, -1.0]), n_iter=5)
        tensor([0.7500, 0.2500, 0.0000])
    """
    return verbs.sparsemax(X, dim)


def entmax15(X: Tensor, dim: int = -1, k: int | None = None, return_support_size: bool = False) -> Any:
    """See `regmax.entmax`, at alpha = 1.5; the arguments are those of `sparsemax`.

    Example:
        >>> import torch
        >>> entmax15(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.6740, 0.3260, 0.0000])
    """
    return _with_support(verbs.entmax(X, dim, alpha=1.5), dim, return_support_size)


def entmax_bisect(
    X: Tensor,
    alpha: float | Tensor = 1.5,
    dim: int = -1,
    n_iter: int = 50,
    ensure_sum_one: bool = True,
) -> Tensor:
    """alpha-entmax; alpha from 1 (softmax) to 2 (sparsemax) by regmax's kernel, any other by a bracketed root.

    Args:
        X: scores.
        alpha: positive: a number, or a tensor that broadcasts against X with size 1 along `dim`, which gets gradients.
        dim: the dimension that is mapped to the simplex.
        n_iter: ignored; the roots are exact to rounding.
        ensure_sum_one: ignored; weights always sum to 1.

    Returns:
        Weights of the scores' shape and type.

    Example:
        >>> import torch
        >>> entmax_bisect(torch.tensor([1.0, 0.5, -1.0]), alpha=1.25)
        tensor([0.6315, 0.3451, 0.0235])
        >>> entmax_bisect(torch.tensor([1.0, 0.9, -1.0]), alpha=3.0)
        tensor([0.6000, 0.4000, 0.0000])
    """
    _check("entmax_bisect(X, alpha)", alpha)
    if not isinstance(alpha, Tensor):
        if 1 <= alpha <= 2:
            return verbs.entmax(X, dim, alpha=float(alpha))
        return _apply(roots.Entmax, X, alpha, dim)
    outside = (alpha < 1) | (alpha > 2)
    if not bool(outside.any()):
        return verbs.entmax(X, dim, alpha=alpha.to(X.dtype))
    # Rows in bounds by the kernel, the others by the root; each function sees a valid alpha in the other's rows.
    other = _apply(roots.Entmax, X, torch.where(outside, alpha, 3.0), dim)
    if bool(outside.all()):
        return other
    inside = verbs.entmax(X, dim, alpha=torch.where(outside, 1.5, alpha).to(X.dtype))
    return torch.where(outside, other, inside)


def normmax_bisect(X: Tensor, alpha: float | Tensor = 2, dim: int = -1, n_iter: int = 50) -> Tensor:
    """alpha-normmax: argmax over the simplex of <x, y> - ||y||_alpha; the norm is not squared, as in `sqpnormmax`.

    Args:
        X: scores.
        alpha: positive and not 1, as in `entmax_bisect`.
        dim: the dimension that is mapped to the simplex.
        n_iter: ignored.

    Returns:
        Weights of the scores' shape and type.

    Example:
        >>> import torch
        >>> normmax_bisect(torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0]), alpha=2)
        tensor([0.0000, 0.0239, 0.1746, 0.3254, 0.4761])
    """
    _check("normmax_bisect(X, alpha)", alpha)
    if bool((torch.as_tensor(alpha) == 1).any()):
        raise ValueError("`normmax_bisect(X, alpha)` must not be 1, where the norm is constant. Got 1.")
    return _apply(roots.Normmax, X, alpha, dim)


def budget_bisect(X: Tensor, budget: float | Tensor = 2, dim: int = -1, n_iter: int = 50) -> Tensor:
    """The projection onto 0 <= y <= 1 with sum `budget` along `dim`; `n_iter` is ignored.

    A negative budget gives zeros, and one above the number of scores ones.

    Example:
        >>> import torch
        >>> budget_bisect(torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0]), budget=2)
        tensor([0.0000, 0.1250, 0.3750, 0.6250, 0.8750])
    """
    return _apply(roots.Budget, X, budget, dim)


def _with_support(y: Tensor, dim: int, return_support_size: bool) -> Any:
    return (y, (y != 0).sum(dim, keepdim=True)) if return_support_size else y


def _check(call: str, alpha: Any) -> None:
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float, Tensor)):
        raise TypeError(f"`{call}` needs a number or a tensor `alpha`. Got {type(alpha).__name__}.")
    if not bool((torch.as_tensor(alpha) > 0).all()):
        raise ValueError(f"`{call}` needs a positive `alpha`. Got {alpha}.")


def _apply(function: Any, X: Tensor, strength: float | Tensor, dim: int) -> Tensor:
    """A function of rows, with its strength broadcast to one per row; half precision is computed in float32."""
    work = torch.float32 if X.dtype in (torch.float16, torch.bfloat16) else X.dtype
    if not isinstance(strength, Tensor):
        strength = torch.full((), strength, dtype=work, device=X.device)
    rows = X.movedim(dim, -1).to(work)
    shape = [size if i != dim % X.ndim else 1 for i, size in enumerate(X.shape)]
    strengths = strength.to(work).expand(shape).movedim(dim, -1)
    return function.apply(rows, strengths).movedim(-1, dim).to(X.dtype)
