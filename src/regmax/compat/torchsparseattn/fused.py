"""torchsparseattn's fusedmax, and the proximal operator of total variation."""

import torch
from torch import Tensor

import regmax.functional as verbs
from regmax.compat.torchsparseattn.base import Lengths, ProxFunction, length_mask
from regmax.kernels import tensors


class FusedProxFunction(ProxFunction):
    """Total variation denoising, `regmax.prox_tv1d`.

    Args:
        alpha: how strongly neighbours are fused; regmax calls it `lam`.

    Example:
        >>> import torch
        >>> FusedProxFunction(alpha=0.5)(torch.tensor([1.0, 3.0, 0.0]))
        tensor([1.5000, 2.0000, 0.5000])
    """

    def __init__(self, alpha: float = 1) -> None:
        self.alpha = alpha

    def prox(self, x: Tensor) -> Tensor:
        return verbs.prox_tv1d(x, self.alpha)


class Fusedmax(torch.nn.Module):
    """Fusedmax; see `regmax.fusedmax`.

    Args:
        alpha: how strongly neighbours are fused; regmax calls it `lam`.

    Example:
        >>> import torch
        >>> Fusedmax(alpha=0.1)(torch.tensor([[1.0, 0.9, 0.6, 0.0]]), lengths=torch.tensor([3]))
        tensor([[0.4000, 0.4000, 0.2000, 0.0000]])
    """

    def __init__(self, alpha: float = 1) -> None:
        super().__init__()
        self.alpha = alpha

    def forward(self, x: Tensor, lengths: Lengths = None) -> Tensor:
        """The weights of x, (d) or (n, d)."""
        mask = length_mask("Fusedmax(alpha)(x, lengths)", x, lengths)
        return verbs.fusedmax(x, lam=self.alpha, mask=mask)


def fused_prox_jv_slow(y_hat: Tensor, dout: Tensor) -> Tensor:
    """The product of `FusedProxFunction`'s Jacobian with `dout`, read off its result: the mean over each run.

    torchsparseattn has it in Python and in Cython, with one name each; here they are the same.

    Example:
        >>> import torch
        >>> fused_prox_jv_slow(torch.tensor([1.5, 1.5, 2.0]), torch.tensor([1.0, 3.0, 5.0]))
        tensor([2., 2., 5.])
    """
    return tensors.jacobian_product("prox_tv1d", y_hat, dout, theta=1.0)


fused_prox_jv_fast = fused_prox_jv_slow
