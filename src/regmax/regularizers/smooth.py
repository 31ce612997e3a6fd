"""Any differentiable Omega: the general case of the paper's Section 3.1."""

from abc import abstractmethod
from typing import Any

from regmax.regularizers.base import Regularizer


class SmoothRegularizer(Regularizer):
    """A user-defined, differentiable, strongly convex Omega: only `value` is required.

    The mapping is computed by an interior point method, which stops for each row when the duality gap is below `tol`
    (or below the resolution of float64), and differentiated by Proposition 1, restricted to the support. A separable
    Omega, a sum of functions of one weight each, costs O(d) per row, any other O(d^3). `value` uses PyTorch
    operations, acts along the last dimension, and treats all rows alike. An error is raised if Omega is found not to
    be convex. Set `tol` and `max_iter` on the class or on an instance. Masked positions are held at 0.

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
        """The gradient of Omega at y, row by row; by autograd unless overridden."""
        import torch

        return torch.func.grad(lambda weights: self.value(weights).sum())(y)

    def hessian(self, y: Any) -> Any:
        """The Hessians of Omega at y, of shape (..., d, d); by autograd unless overridden."""
        import torch

        # Reverse mode twice: forward mode loads deprecated code of torch, which warns for every function.
        rows = y.reshape(-1, y.shape[-1])
        product = torch.func.vjp(self.gradient, rows)[1]
        basis = torch.eye(rows.shape[-1], dtype=y.dtype, device=y.device)[:, None].expand(-1, *rows.shape)
        columns = torch.func.vmap(product)(basis)[0]  # (d, n, d)
        return columns.movedim(0, -1).reshape(*y.shape, y.shape[-1])
