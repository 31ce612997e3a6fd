"""entmax's losses: the Fenchel-Young loss of a target e is max_Omega(x) + Omega(e) - <x, e>.

Its gradient is the mapping's weights minus the target.
"""

from typing import Any

import torch
from torch import Tensor

from regmax.arrays import exponential_ratio
from regmax.compat.entmax.mappings import entmax_bisect, normmax_bisect


def _loss(X: Tensor, target: Tensor, y: Tensor, omega: Tensor) -> Tensor:
    """<y - e, x> - omega for each row of X, (n, classes); `omega` is Omega(y) - Omega(e)."""
    # Scores are relative to the target's, which loses fewer digits; a score of -inf has no weight.
    relative = X - X.gather(-1, target[..., None])
    loss = torch.where(y != 0, y * relative, 0.0).sum(-1) - omega
    return loss.clamp(min=0)  # below 0 only by rounding, where the gradient vanishes


def _entmax_loss(X: Tensor, target: Tensor, alpha: float | Tensor, return_support_size: bool = False) -> Any:
    y = entmax_bisect(X, alpha)
    logarithm = torch.where(y > 0, y, 1.0).log()
    terms = y * logarithm * exponential_ratio((alpha - 1) * logarithm) / alpha
    loss = _loss(X, target, y, terms.sum(-1))
    return (loss, (y != 0).sum(-1, keepdim=True)) if return_support_size else loss


def sparsemax_loss(X: Tensor, target: Tensor, k: int | None = None, return_support_size: bool = False) -> Any:
    """Sparsemax's loss of every row; zero if the target's score exceeds the others by at least 1.

    Args:
        X: scores, (n, classes).
        target: the indices of the correct classes, (n).
        k: ignored.
        return_support_size: return the numbers of nonzero weights, (n, 1), too.

    Returns:
        One loss for each row.

    Example:
        >>> import torch
        >>> sparsemax_loss(torch.tensor([[1.0, 0.5, -1.0], [0.0, 2.0, 1.0]]), torch.tensor([0, 1]))
        tensor([0.0625, 0.0000])
    """
    return _entmax_loss(X, target, 2.0, return_support_size)


def sparsemax_bisect_loss(X: Tensor, target: Tensor, n_iter: int = 50) -> Any:
    """See `sparsemax_loss`; `n_iter` is ignored.

    Example:
        >>> import torch
        >>> sparsemax_bisect_loss(torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([0]))
        tensor([0.0625])
    """
    return sparsemax_loss(X, target)


def entmax15_loss(X: Tensor, target: Tensor, k: int | None = None, return_support_size: bool = False) -> Any:
    """1.5-entmax's loss of every row; the arguments are those of `sparsemax_loss`.

    Example:
        >>> import torch
        >>> entmax15_loss(torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([0]))
        tensor([0.1844])
    """
    return _entmax_loss(X, target, 1.5, return_support_size)


def entmax_bisect_loss(X: Tensor, target: Tensor, alpha: float | Tensor = 1.5, n_iter: int = 50) -> Tensor:
    """alpha-entmax's loss of every row; at alpha = 1 it is the cross entropy. A tensor `alpha` gets gradients.

    Example:
        >>> import torch
        >>> entmax_bisect_loss(torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([0]), alpha=1.0)
        tensor([0.5550])
    """
    loss: Tensor = _entmax_loss(X, target, alpha)
    return loss


def normmax_bisect_loss(X: Tensor, target: Tensor, alpha: float | Tensor = 2, n_iter: int = 50) -> Tensor:
    """alpha-normmax's loss of every row.

    Example:
        >>> import torch
        >>> normmax_bisect_loss(torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([0]))
        tensor([0.0886])
    """
    y = normmax_bisect(X, alpha)
    powers = torch.where(y > 0, torch.where(y > 0, y, 1.0) ** alpha, 0.0).sum(-1, keepdim=True)
    return _loss(X, target, y, (powers ** (1 / alpha))[..., 0] - 1)


class _Loss(torch.nn.Module):
    """A loss over a batch; targets equal to `ignore_index` are ignored."""

    def __init__(self, ignore_index: int, reduction: str) -> None:
        super().__init__()
        if reduction not in ("elementwise_mean", "sum", "none"):
            raise ValueError(
                f"`{type(self).__name__}(reduction=...)` must be 'elementwise_mean', 'sum' or 'none'. "
                f"Got {reduction!r}."
            )
        self.ignore_index, self.reduction = ignore_index, reduction

    def loss(self, X: Tensor, target: Tensor) -> Any:
        """The loss of every row; with `return_support_size` also the sizes."""
        raise NotImplementedError

    def forward(self, X: Tensor, target: Tensor) -> Any:
        """The loss of scores (n, classes) and targets (n)."""
        counts = target != self.ignore_index
        found = self.loss(X, torch.where(counts, target, 0))
        each, *sizes = found if isinstance(found, tuple) else (found,)
        each = torch.where(counts, each, 0.0)
        if self.reduction != "none":
            each = each.sum() if self.reduction == "sum" else each.sum() / counts.sum()
        return (each, *sizes) if sizes else each


class SparsemaxLoss(_Loss):
    """The module of `sparsemax_loss`.

    Args:
        k: ignored.
        ignore_index: targets with this value are ignored.
        reduction: "elementwise_mean", "sum" or "none".
        return_support_size: return the numbers of nonzero weights, (n, 1), too.

    Example:
        >>> import torch
        >>> SparsemaxLoss()(torch.tensor([[1.0, 0.5, -1.0], [0.0, 2.0, 1.0]]), torch.tensor([0, 1]))
        tensor(0.0312)
    """

    def __init__(
        self,
        k: int | None = None,
        ignore_index: int = -100,
        reduction: str = "elementwise_mean",
        return_support_size: bool = False,
    ) -> None:
        super().__init__(ignore_index, reduction)
        self.k, self.return_support_size = k, return_support_size

    def loss(self, X: Tensor, target: Tensor) -> Any:
        """See `sparsemax_loss`."""
        return sparsemax_loss(X, target, self.k, self.return_support_size)


class SparsemaxBisectLoss(_Loss):
    """The module of `sparsemax_bisect_loss`; the arguments are those of `SparsemaxLoss`.

    Example:
        >>> import torch
        >>> SparsemaxBisectLoss()(torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([0]))
        tensor(0.0625)
    """

    def __init__(
        self, n_iter: int = 50, ignore_index: int = -100, reduction: str = "elementwise_mean"
    ) -> None:
        super().__init__(ignore_index, reduction)
        self.n_iter = n_iter

    def loss(self, X: Tensor, target: Tensor) -> Any:
        """See `sparsemax_bisect_loss`."""
        return sparsemax_bisect_loss(X, target, self.n_iter)


class Entmax15Loss(_Loss):
    """The module of `entmax15_loss`; the arguments are those of `SparsemaxLoss`.

    Example:
        >>> import torch
        >>> Entmax15Loss(reduction="sum")(torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([0]))
        tensor(0.1844)
    """

    def __init__(
        self,
        k: int = 100,
        ignore_index: int = -100,
        reduction: str = "elementwise_mean",
        return_support_size: bool = False,
    ) -> None:
        super().__init__(ignore_index, reduction)
        self.k, self.return_support_size = k, return_support_size

    def loss(self, X: Tensor, target: Tensor) -> Any:
        """See `entmax15_loss`."""
        return entmax15_loss(X, target, self.k, self.return_support_size)


class EntmaxBisectLoss(_Loss):
    """The module of `entmax_bisect_loss`; the other arguments are those of `SparsemaxLoss`.

    Example:
        >>> import torch
        >>> EntmaxBisectLoss(alpha=2.0)(torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([0]))
        tensor(0.0625)
    """

    def __init__(
        self,
        alpha: float | Tensor = 1.5,
        n_iter: int = 50,
        ignore_index: int = -100,
        reduction: str = "elementwise_mean",
    ) -> None:
        super().__init__(ignore_index, reduction)
        self.alpha, self.n_iter = alpha, n_iter

    def loss(self, X: Tensor, target: Tensor) -> Any:
        """See `entmax_bisect_loss`."""
        return entmax_bisect_loss(X, target, self.alpha, self.n_iter)


class NormmaxBisectLoss(_Loss):
    """The module of `normmax_bisect_loss`; the other arguments are those of `SparsemaxLoss`.

    Example:
        >>> import torch
        >>> NormmaxBisectLoss()(torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([0]))
        tensor(0.0886)
    """

    def __init__(
        self,
        alpha: float | Tensor = 2,
        n_iter: int = 50,
        ignore_index: int = -100,
        reduction: str = "elementwise_mean",
    ) -> None:
        super().__init__(ignore_index, reduction)
        self.alpha, self.n_iter = alpha, n_iter

    def loss(self, X: Tensor, target: Tensor) -> Any:
        """See `normmax_bisect_loss`."""
        return normmax_bisect_loss(X, target, self.alpha, self.n_iter)
