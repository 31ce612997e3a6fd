"""entmax's modules."""

from typing import Any

import torch
from torch import Tensor

from regmax.compat.entmax.mappings import budget_bisect, entmax15, entmax_bisect, normmax_bisect, sparsemax


class Sparsemax(torch.nn.Module):
    """See `sparsemax`.

    Example:
        >>> import torch
        >>> Sparsemax(dim=-1)(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.7500, 0.2500, 0.0000])
    """

    def __init__(self, dim: int = -1, k: int | None = None, return_support_size: bool = False) -> None:
        super().__init__()
        self.dim, self.k, self.return_support_size = dim, k, return_support_size

    def forward(self, X: Tensor) -> Any:
        """Weights along `dim`."""
        return sparsemax(X, self.dim, self.k, self.return_support_size)


class SparsemaxBisect(torch.nn.Module):
    """See `sparsemax_bisect`.

    Example:
        >>> import torch
        >>> SparsemaxBisect(n_iter=5)(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.7500, 0.2500, 0.0000])
    """

    def __init__(self, dim: int = -1, n_iter: int | None = None) -> None:
        super().__init__()
        self.dim, self.n_iter = dim, n_iter

    def forward(self, X: Tensor) -> Any:
        """Weights along `dim`."""
        return sparsemax(X, self.dim)


class Entmax15(torch.nn.Module):
    """See `entmax15`.

    Example:
        >>> import torch
        >>> Entmax15()(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.6740, 0.3260, 0.0000])
    """

    def __init__(self, dim: int = -1, k: int | None = None, return_support_size: bool = False) -> None:
        super().__init__()
        self.dim, self.k, self.return_support_size = dim, k, return_support_size

    def forward(self, X: Tensor) -> Any:
        """Weights along `dim`."""
        return entmax15(X, self.dim, self.k, self.return_support_size)


class EntmaxBisect(torch.nn.Module):
    """See `entmax_bisect`.

    Example:
        >>> import torch
        >>> EntmaxBisect(alpha=1.25)(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.6315, 0.3451, 0.0235])
    """

    def __init__(self, alpha: float | Tensor = 1.5, dim: int = -1, n_iter: int = 50) -> None:
        super().__init__()
        self.alpha, self.dim, self.n_iter = alpha, dim, n_iter

    def forward(self, X: Tensor) -> Tensor:
        """Weights along `dim`."""
        return entmax_bisect(X, self.alpha, self.dim, self.n_iter)


class NormmaxBisect(torch.nn.Module):
    """See `normmax_bisect`.

    Example:
        >>> import torch
        >>> NormmaxBisect(alpha=2)(torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0]))
        tensor([0.0000, 0.0239, 0.1746, 0.3254, 0.4761])
    """

    def __init__(self, alpha: float | Tensor = 2, dim: int = -1, n_iter: int = 50) -> None:
        super().__init__()
        self.alpha, self.dim, self.n_iter = alpha, dim, n_iter

    def forward(self, X: Tensor) -> Tensor:
        """Weights along `dim`."""
        return normmax_bisect(X, self.alpha, self.dim, self.n_iter)


class BudgetBisect(torch.nn.Module):
    """See `budget_bisect`.

    Example:
        >>> import torch
        >>> BudgetBisect(budget=2)(torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0]))
        tensor([0.0000, 0.1250, 0.3750, 0.6250, 0.8750])
    """

    def __init__(self, budget: float | Tensor = 2, dim: int = -1, n_iter: int = 50) -> None:
        super().__init__()
        self.budget, self.dim, self.n_iter = budget, dim, n_iter

    def forward(self, X: Tensor) -> Tensor:
        """Weights along `dim`."""
        return budget_bisect(X, self.budget, self.dim, self.n_iter)
