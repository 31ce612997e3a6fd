"""torchsparseattn's sparsemax module."""

import torch
from torch import Tensor

import regmax.functional as verbs
from regmax.compat.torchsparseattn.base import Lengths, length_mask
from regmax.kernels import tensors


class SparsemaxFunction:
    """Sparsemax of the first `lengths[i]` scores of each row; the others get no weight.

    Example:
        >>> import torch
        >>> SparsemaxFunction()(torch.tensor([[1.0, 0.5], [0.3, 9.0]]), torch.tensor([2, 1]))
        tensor([[0.7500, 0.2500],
                [1.0000, 0.0000]])
    """

    def __call__(self, x: Tensor, lengths: Lengths = None) -> Tensor:
        """The weights of x, (d) or (n, d)."""
        return verbs.sparsemax(x, mask=length_mask("SparsemaxFunction()(x, lengths)", x, lengths))


class Sparsemax(torch.nn.Module):
    """The module of `SparsemaxFunction`; see `regmax.sparsemax`.

    Example:
        >>> import torch
        >>> Sparsemax()(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.7500, 0.2500, 0.0000])
    """

    def forward(self, x: Tensor, lengths: Lengths = None) -> Tensor:
        """The weights of x, (d) or (n, d)."""
        return verbs.sparsemax(x, mask=length_mask("Sparsemax()(x, lengths)", x, lengths))


def project_simplex(v: Tensor, z: float = 1) -> Tensor:
    """The projection of v on the simplex of size z; see `regmax.project_simplex`.

    Example:
        >>> import torch
        >>> project_simplex(torch.tensor([1.0, 0.5]), z=2)
        tensor([1.2500, 0.7500])
    """
    return z * verbs.project_simplex(v / z)


def sparsemax_grad(dout: Tensor, w_star: Tensor) -> Tensor:
    """The product of sparsemax's Jacobian with `dout`, read off the weights.

    Example:
        >>> import torch
        >>> sparsemax_grad(torch.tensor([1.0, 3.0, 7.0]), torch.tensor([0.75, 0.25, 0.0]))
        tensor([-1.,  1.,  0.])
    """
    return tensors.jacobian_product("sparsemax", w_star, dout)
