"""torchsparseattn's oscarmax, which is the paper's composition, and the proximal operator of OSCAR."""

import torch
from torch import Tensor

import regmax.functional as verbs
from regmax.compat.torchsparseattn.base import Lengths, ProxFunction, length_mask
from regmax.kernels import tensors
from regmax.regularizers import OscarComposition


class OscarProxFunction(ProxFunction):
    """The proximal operator of alpha ||z||_1 + beta sum_{i<j} max(|z_i|, |z_j|), by `regmax.prox_owl`.

    Args:
        alpha: how strongly every score is drawn to 0.
        beta: how strongly scores are clustered; regmax calls it `lam`.

    Example:
        >>> import torch
        >>> OscarProxFunction(alpha=0.1, beta=0.2)(torch.tensor([1.0, -0.9, 0.2]))
        tensor([ 0.5500, -0.5500,  0.1000])
    """

    def __init__(self, alpha: float = 0, beta: float = 1) -> None:
        self.alpha, self.beta = alpha, beta

    def prox(self, x: Tensor) -> Tensor:
        smaller = torch.arange(x.shape[-1] - 1, -1, -1, dtype=x.dtype, device=x.device)
        return verbs.prox_owl(x, self.alpha + self.beta * smaller)


class Oscarmax(torch.nn.Module):
    """Oscarmax as the paper first published it: OSCAR's proximal operator, then sparsemax.

    The paper's errata says that these two steps do not solve oscarmax's problem. They are kept here, so that trained
    models give what they gave; `regmax.oscarmax(x, lam=beta)` is the exact mapping, at no greater cost.

    Args:
        beta: how strongly weights are clustered; regmax calls it `lam`.

    Example:
        >>> import torch, regmax
        >>> x = torch.tensor([1.0, 0.6, 0.3, -0.5])
        >>> Oscarmax(beta=0.2)(x)
        tensor([0.4222, 0.2889, 0.2889, 0.0000])
        >>> regmax.oscarmax(x, lam=0.2)
        tensor([0.5000, 0.3000, 0.2000, 0.0000])
    """

    def __init__(self, beta: float = 1) -> None:
        super().__init__()
        self.beta = beta

    def forward(self, x: Tensor, lengths: Lengths = None) -> Tensor:
        """The weights of x, (d) or (n, d)."""
        mask = length_mask("Oscarmax(beta)(x, lengths)", x, lengths)
        return verbs.regularized_argmax(OscarComposition(self.beta), x, mask=mask)


def oscar_prox_jv(y_hat: Tensor, dout: Tensor) -> Tensor:
    """The product of `OscarProxFunction`'s Jacobian with `dout`, read off its result.

    Values of one size move together, and zeros stay.

    Example:
        >>> import torch
        >>> oscar_prox_jv(torch.tensor([0.5, -0.5, 0.0]), torch.tensor([1.0, 3.0, 7.0]))
        tensor([-1.,  1.,  0.])
    """
    # Any weights that fall strictly and stay positive: the product depends on their order alone.
    falling = torch.arange(y_hat.shape[-1], 0, -1, dtype=y_hat.dtype, device=y_hat.device)
    return tensors.prox_owl_jacobian_product(y_hat, dout, falling)


def prox_owl(v: Tensor, w: Tensor) -> Tensor:
    """The proximal operator of the ordered weighted L1 norm; see `regmax.prox_owl`, which takes arrays too.

    Example:
        >>> import torch
        >>> prox_owl(torch.tensor([1.0, -0.9, 0.1]), torch.tensor([0.4, 0.2, 0.0]))
        tensor([ 0.6500, -0.6500,  0.1000])
    """
    return verbs.prox_owl(v, w)
