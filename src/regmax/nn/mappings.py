"""Module twins of the mappings."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

import regmax.functional as verbs
from regmax.nn.strengths import Strengths
from regmax.regularizers import Regularizer

Learnable = bool | str | tuple[str, ...]


class _Mapping(torch.nn.Module):
    """A mapping along `dim`, with its strengths."""

    verb: ClassVar[Callable[..., Any]]

    def __init__(self, dim: int, learnable: Learnable, **strengths: Any) -> None:
        super().__init__()
        self.dim = dim
        self.strengths = Strengths(strengths, learnable)

    def forward(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Weights along `dim`; `mask` is True where a score takes part."""
        return type(self).verb(scores, self.dim, mask=mask, **self.strengths.current())

    def extra_repr(self) -> str:
        """`dim`; the strengths show themselves."""
        return f"dim={self.dim}"


class Softmax(_Mapping):
    """See `regmax.softmax`.

    Args:
        dim: the dimension that is mapped to the simplex.
        gamma: the temperature, a number or a tensor that broadcasts against the scores.
        learnable: the names of the strengths to learn, or True for all; they stay in their bounds at every step.

    Example:
        >>> import torch, regmax
        >>> regmax.nn.Softmax()(torch.tensor([1.0, 1.0]))
        tensor([0.5000, 0.5000])
    """

    verb = staticmethod(verbs.softmax)

    def __init__(self, dim: int = -1, *, gamma: Any = 1.0, learnable: Learnable = False) -> None:
        super().__init__(dim, learnable, gamma=gamma)


class Sparsemax(_Mapping):
    """See `regmax.sparsemax`; the arguments are those of `Softmax`.

    Example:
        >>> import torch, regmax
        >>> regmax.nn.Sparsemax()(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.7500, 0.2500, 0.0000])
    """

    verb = staticmethod(verbs.sparsemax)

    def __init__(self, dim: int = -1, *, gamma: Any = 1.0, learnable: Learnable = False) -> None:
        super().__init__(dim, learnable, gamma=gamma)


class Fusedmax(_Mapping):
    """See `regmax.fusedmax`.

    Args:
        dim: the dimension that is mapped to the simplex.
        lam: how strongly neighbours are fused, a number or a tensor that broadcasts against the scores.
        gamma: the strength of the whole regularizer, likewise.
        learnable: the names of the strengths to learn, or True for all; they stay in their bounds at every step.

    Example:
        >>> import torch, regmax
        >>> fusedmax = regmax.nn.Fusedmax(lam=torch.full((8, 1, 1), 0.1), learnable="lam")  # one per head
        >>> fusedmax(torch.zeros(2, 8, 5, 7)).shape
        torch.Size([2, 8, 5, 7])
    """

    verb = staticmethod(verbs.fusedmax)

    def __init__(
        self, dim: int = -1, *, lam: Any = 0.1, gamma: Any = 1.0, learnable: Learnable = False
    ) -> None:
        super().__init__(dim, learnable, lam=lam, gamma=gamma)


class Oscarmax(_Mapping):
    """See `regmax.oscarmax`; the arguments are those of `Fusedmax`.

    Example:
        >>> import torch, regmax
        >>> regmax.nn.Oscarmax(lam=0.1)(torch.tensor([1.0, 0.0, 0.95]))
        tensor([0.5000, 0.0000, 0.5000])
    """

    verb = staticmethod(verbs.oscarmax)

    def __init__(
        self, dim: int = -1, *, lam: Any = 0.01, gamma: Any = 1.0, learnable: Learnable = False
    ) -> None:
        super().__init__(dim, learnable, lam=lam, gamma=gamma)


class Sqpnormmax(_Mapping):
    """See `regmax.sqpnormmax`; `p` is learned within (1, 2].

    Example:
        >>> import torch, regmax
        >>> regmax.nn.Sqpnormmax(p=2.0)(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.7500, 0.2500, 0.0000])
    """

    verb = staticmethod(verbs.sqpnormmax)

    def __init__(
        self, dim: int = -1, *, p: Any = 1.5, gamma: Any = 1.0, learnable: Learnable = False
    ) -> None:
        super().__init__(dim, learnable, p=p, gamma=gamma)


class RegularizedArgmax(_Mapping):
    """See `regmax.regularized_argmax`: the module of any regularizer.

    Example:
        >>> import torch, regmax
        >>> regmax.nn.RegularizedArgmax(regmax.SquaredNorm())(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.7500, 0.2500, 0.0000])
    """

    def __init__(
        self, omega: Regularizer, dim: int = -1, *, gamma: Any = 1.0, learnable: Learnable = False
    ) -> None:
        super().__init__(dim, learnable, gamma=gamma)
        self.omega = omega

    def forward(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Weights along `dim`; `mask` is True where a score takes part."""
        strengths = self.strengths.current()
        return verbs.regularized_argmax(self.omega, scores, self.dim, mask=mask, **strengths)
