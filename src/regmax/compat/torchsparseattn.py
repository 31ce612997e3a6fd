"""The names of torchsparseattn 0.2, the code published with the paper, on regmax's kernels.

`lam` is called `alpha` or `beta` there; scores have one or two dimensions, and `lengths` take the place of a mask.
Its oscarmax is the paper's composition of two steps, and `Oscarmax` here computes the same; `regmax.oscarmax` is exact.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

import regmax.functional as verbs
from regmax.kernels import tensors
from regmax.regularizers import OscarComposition

__all__ = [
    "FusedProxFunction",
    "Fusedmax",
    "OscarProxFunction",
    "Oscarmax",
    "Sparsemax",
    "SparsemaxFunction",
]

# torchsparseattn has its names in three modules: `from torchsparseattn.fused import ...` works here, too.
for _module in ("fused", "oscar", "sparsemax"):
    sys.modules[f"{__name__}.{_module}"] = sys.modules[__name__]

Lengths = Tensor | Sequence[int] | None


def length_mask(call: str, x: Tensor, lengths: Lengths) -> Tensor | None:
    """True before the end of each row of x, (d) or (n, d); None if `lengths` is None."""
    if x.ndim not in (1, 2):
        raise ValueError(f"`{call}` takes one row, or rows as a matrix. Got {x.ndim} dimensions.")
    if lengths is None:
        return None
    n, d = (1, *x.shape)[-2:]
    ends = torch.as_tensor(lengths, device=x.device).reshape(-1, 1)
    if len(ends) != n or bool(((ends < 1) | (ends > d)).any()):
        raise ValueError(
            f"`{call}`: `lengths` must have a number from 1 to {d} for each of {n} rows. Got {lengths}."
        )
    return (torch.arange(d, device=x.device) < ends).reshape(x.shape)


class ProxFunction(ABC):
    """A proximal operator on the first `lengths[i]` scores of each row; the others become zero.

    In torchsparseattn these are autograd functions whose instances are called. Here they are callable objects.
    """

    @abstractmethod
    def prox(self, x: Tensor) -> Tensor:
        """The operator on whole rows (n, d)."""

    def __call__(self, x: Tensor, lengths: Lengths = None) -> Tensor:
        """The operator on x, (d) or (n, d)."""
        mask = length_mask(f"{type(self).__name__}()(x, lengths)", x, lengths)
        if mask is None:
            return self.prox(x)
        rows, ends = x.reshape(-1, x.shape[-1]), mask.reshape(-1, x.shape[-1]).sum(-1)
        z = torch.zeros_like(rows)
        # The operators take no mask: rows of equal length form a batch.
        for end in ends.unique().tolist():
            these = (ends == end).nonzero().squeeze(1)
            part = torch.nn.functional.pad(self.prox(rows[these, :end]), (0, rows.shape[1] - end))
            z = z.index_copy(0, these, part)
        return z.reshape(x.shape)


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
    """The projection of v onto the simplex of size z; see `regmax.project_simplex`.

    Example:
        >>> import torch
        >>> project_simplex(torch.tensor([1.0, 0.5]), z=2)
        tensor([1.2500, 0.7500])
    """
    return z * verbs.project_simplex(v / z)


def sparsemax_grad(dout: Tensor, w_star: Tensor) -> Tensor:
    """The product of sparsemax's Jacobian with `dout`, computed from the weights.

    Example:
        >>> import torch
        >>> sparsemax_grad(torch.tensor([1.0, 3.0, 7.0]), torch.tensor([0.75, 0.25, 0.0]))
        tensor([-1.,  1.,  0.])
    """
    return tensors.jacobian_product("sparsemax", w_star, dout)


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
    """The product of `FusedProxFunction`'s Jacobian with `dout`, from its result: the mean over each segment.

    torchsparseattn has a Python and a Cython version under two names; here both are the same function.

    Example:
        >>> import torch
        >>> fused_prox_jv_slow(torch.tensor([1.5, 1.5, 2.0]), torch.tensor([1.0, 3.0, 5.0]))
        tensor([2., 2., 5.])
    """
    return tensors.jacobian_product("prox_tv1d", y_hat, dout, theta=1.0)


fused_prox_jv_fast = fused_prox_jv_slow


class OscarProxFunction(ProxFunction):
    """The proximal operator of alpha ||z||_1 + beta sum_{i<j} max(|z_i|, |z_j|), by `regmax.prox_owl`.

    Args:
        alpha: how strongly every score is shrunk towards 0.
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

    The paper's errata says that these two steps do not solve oscarmax's problem. They are kept here so that trained
    models give the same results; `regmax.oscarmax(x, lam=beta)` is the exact mapping and costs no more.

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
    """The product of `OscarProxFunction`'s Jacobian with `dout`, from its result.

    Values of equal magnitude move together, and zeros do not move.

    Example:
        >>> import torch
        >>> oscar_prox_jv(torch.tensor([0.5, -0.5, 0.0]), torch.tensor([1.0, 3.0, 7.0]))
        tensor([-1.,  1.,  0.])
    """
    # Any positive, strictly decreasing weights: the product depends only on their order.
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
