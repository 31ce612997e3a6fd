"""entmax's losses: the Fenchel-Young loss of a target e is max_Omega(x) + Omega(e) - <x, e>.

Its gradient is the mapping's weights minus the target.
"""

import torch
from torch import Tensor

from regmax.compat.entmax.mappings import Tsallis, tsallis
from regmax.frontends.torch import fenchel_young
from regmax.regularizers import Regularizer, SquaredNorm


def _loss(omega: Regularizer, x: Tensor, target: Tensor) -> Tensor:
    """One loss for each row of x, (n, classes)."""
    one_hot = torch.nn.functional.one_hot(target, x.shape[-1]).to(x.dtype)
    return fenchel_young(omega, x, one_hot, -1, 1.0, None)


def sparsemax_loss(X: Tensor, target: Tensor, k: int | None = None) -> Tensor:
    """Sparsemax's loss of every row; zero if the target's score exceeds the others by at least 1.

    Args:
        X: scores, (n, classes).
        target: the indices of the correct classes, (n).
        k: ignored.

    Returns:
        One loss for each row.

    Example:
        >>> import torch
        >>> sparsemax_loss(torch.tensor([[1.0, 0.5, -1.0], [0.0, 2.0, 1.0]]), torch.tensor([0, 1]))
        tensor([0.0625, 0.0000])
    """
    return _loss(SquaredNorm(), X, target)


def sparsemax_bisect_loss(X: Tensor, target: Tensor, n_iter: int = 50) -> Tensor:
    """See `sparsemax_loss`; `n_iter` is ignored.

    Example:
        >>> import torch
        >>> sparsemax_bisect_loss(torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([0]))
        tensor([0.0625])
    """
    return sparsemax_loss(X, target)


def entmax15_loss(X: Tensor, target: Tensor, k: int | None = None) -> Tensor:
    """1.5-entmax's loss of every row; the arguments are those of `sparsemax_loss`.

    Example:
        >>> import torch
        >>> entmax15_loss(torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([0]))
        tensor([0.1844])
    """
    return _loss(Tsallis(1.5), X, target)


def entmax_bisect_loss(X: Tensor, target: Tensor, alpha: float = 1.5, n_iter: int = 50) -> Tensor:
    """alpha-entmax's loss of every row; at alpha = 1 it is the cross entropy.

    Example:
        >>> import torch
        >>> entmax_bisect_loss(torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([0]), alpha=1.0)
        tensor([0.5550])
    """
    return _loss(tsallis("entmax_bisect_loss(X, target, alpha)", alpha), X, target)


class _Loss(torch.nn.Module):
    """A loss over a batch; targets equal to `ignore_index` are ignored."""

    def __init__(self, omega: Regularizer, ignore_index: int, reduction: str) -> None:
        super().__init__()
        if reduction not in ("elementwise_mean", "sum", "none"):
            raise ValueError(
                f"`{type(self).__name__}(reduction=...)` must be 'elementwise_mean', 'sum' or 'none'. "
                f"Got {reduction!r}."
            )
        self.omega, self.ignore_index, self.reduction = omega, ignore_index, reduction

    def forward(self, X: Tensor, target: Tensor) -> Tensor:
        """The loss of scores (n, classes) and targets (n)."""
        counts = target != self.ignore_index
        loss = _loss(self.omega, X, torch.where(counts, target, 0))
        loss = torch.where(counts, loss, 0.0)
        if self.reduction == "none":
            return loss
        return loss.sum() if self.reduction == "sum" else loss.sum() / counts.sum()


class SparsemaxLoss(_Loss):
    """The module of `sparsemax_loss`.

    Args:
        k: ignored.
        ignore_index: targets with this value are ignored.
        reduction: "elementwise_mean", "sum" or "none".

    Example:
        >>> import torch
        >>> SparsemaxLoss()(torch.tensor([[1.0, 0.5, -1.0], [0.0, 2.0, 1.0]]), torch.tensor([0, 1]))
        tensor(0.0312)
    """

    def __init__(
        self, k: int | None = None, ignore_index: int = -100, reduction: str = "elementwise_mean"
    ) -> None:
        super().__init__(SquaredNorm(), ignore_index, reduction)


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
        super().__init__(SquaredNorm(), ignore_index, reduction)


class Entmax15Loss(_Loss):
    """The module of `entmax15_loss`; the arguments are those of `SparsemaxLoss`.

    Example:
        >>> import torch
        >>> Entmax15Loss(reduction="sum")(torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([0]))
        tensor(0.1844)
    """

    def __init__(self, k: int = 100, ignore_index: int = -100, reduction: str = "elementwise_mean") -> None:
        super().__init__(Tsallis(1.5), ignore_index, reduction)


class EntmaxBisectLoss(_Loss):
    """The module of `entmax_bisect_loss`; the other arguments are those of `SparsemaxLoss`.

    Example:
        >>> import torch
        >>> EntmaxBisectLoss(alpha=2.0)(torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([0]))
        tensor(0.0625)
    """

    def __init__(
        self,
        alpha: float = 1.5,
        n_iter: int = 50,
        ignore_index: int = -100,
        reduction: str = "elementwise_mean",
    ) -> None:
        super().__init__(tsallis("EntmaxBisectLoss(alpha)", alpha), ignore_index, reduction)
