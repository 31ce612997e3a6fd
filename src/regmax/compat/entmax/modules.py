"""entmax's modules."""

import torch
from torch import Tensor

from regmax.compat.entmax.mappings import entmax15, entmax_bisect, sparsemax


class Sparsemax(torch.nn.Module):
    """See `sparsemax`.

    Example:
        >>> import torch
        >>> Sparsemax(dim=-1)(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.7500, 0.2500, 0.0000])
    """

    def __init__(self, dim: int = -1, k: int | None = None) -> None:
        super().__init__()
        self.dim, self.k = dim, k

    def forward(self, X: Tensor) -> Tensor:
        """Weights along `dim`."""
        return sparsemax(X, self.dim, self.k)


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

    def forward(self, X: Tensor) -> Tensor:
        """Weights along `dim`."""
        return sparsemax(X, self.dim)


class Entmax15(torch.nn.Module):
    """See `entmax15`.

    Example:
        >>> import torch
        >>> Entmax15()(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.6740, 0.3260, 0.0000])
    """

    def __init__(self, dim: int = -1, k: int | None = None) -> None:
        super().__init__()
        self.dim, self.k = dim, k

    def forward(self, X: Tensor) -> Tensor:
        """Weights along `dim`."""
        return entmax15(X, self.dim, self.k)


class EntmaxBisect(torch.nn.Module):
    """See `entmax_bisect`.

    Example:
        >>> import torch
        >>> EntmaxBisect(alpha=1.25)(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.6315, 0.3451, 0.0235])
    """

    def __init__(self, alpha: float = 1.5, dim: int = -1, n_iter: int = 50) -> None:
        super().__init__()
        self.alpha, self.dim, self.n_iter = alpha, dim, n_iter

    def forward(self, X: Tensor) -> Tensor:
        """Weights along `dim`."""
        return entmax_bisect(X, self.alpha, self.dim, self.n_iter)
