"""Any differentiable Omega: the general case of the paper's Section 3.1."""

from abc import abstractmethod
from typing import Any

from regmax.regularizers.base import Regularizer


class SmoothRegularizer(Regularizer):
    """A differentiable, strongly convex Omega that you define: `value` is enough.

    The mapping is found by an interior point method, stopped row by row when the duality gap falls under `tol` (or
    under what float64 resolves), and differentiated by Proposition 1, restricted to the support. A separable Omega, a
    sum of functions of one weight each, costs O(d) a row, any other O(d^3). All of it runs on PyTorch operations, so
    `value` is written with them, works along the last dimension, and treats rows alike. An Omega that is found not to
    be convex raises. Set `tol` and `max_iter` on the class or on an object. Positions that are masked are held at 0.

    Example:
        >>> import torch, regmax
        >>> class Tsallis(regmax.SmoothRegularizer):
        ...     def value(self, y):
        ...         return ((y**1.5).sum(-1) - 1) / 0.75
        >>> print(regmax.regularized_argmax(Tsallis(), torch.tensor([1.0, 0.5, -1.0, -2.0])))
        tensor([0.6740, 0.3260, 0.0000, 0.0000])
    """

    tol: float = 1e-12
    max_iter: int = 100

    @abstractmethod
    def value(self, y: Any) -> Any:
        """Omega(y), along the last dimension, in PyTorch operations."""

    def gradient(self, y: Any) -> Any:
        """The gradient of Omega at y, row by row; by autograd unless you know it."""
        import torch

        return torch.func.grad(lambda weights: self.value(weights).sum())(y)

    def hessian(self, y: Any) -> Any:
        """The Hessians of Omega at y, of shape (..., d, d); by autograd unless you know it."""
        import torch

        # Reverse mode twice: forward mode loads code that torch deprecates, with a warning for each function.
        rows = y.reshape(-1, y.shape[-1])
        product = torch.func.vjp(self.gradient, rows)[1]
        basis = torch.eye(rows.shape[-1], dtype=y.dtype, device=y.device)[:, None].expand(-1, *rows.shape)
        columns = torch.func.vmap(product)(basis)[0]  # (d, n, d)
        return columns.movedim(0, -1).reshape(*y.shape, y.shape[-1])
