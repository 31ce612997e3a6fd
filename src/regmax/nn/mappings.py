"""Module twins of the mappings."""

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from regmax.arrays import A, AnyArray, Array, Strength
from regmax.functional import regularized_argmax
from regmax.mappings import GAMMA, named
from regmax.nn.strengths import Strengths
from regmax.regularizers import Regularizer
from regmax.resolver import MappingModule, Resolved, function_of

Learnable = bool | str | tuple[str, ...]


class _Mapping(torch.nn.Module, MappingModule):
    """A mapping along `dim`, with its strengths."""

    name: ClassVar[str]  # in the registry

    if TYPE_CHECKING:  # torch's own takes and returns anything

        def __call__(self, scores: Array[A], mask: AnyArray | None = None) -> A: ...

    def __init__(self, dim: int, learnable: Learnable, **strengths: Any) -> None:
        super().__init__()
        self.dim = dim
        self.strengths = Strengths(strengths, learnable)

    def forward(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Weights along `dim`; `mask` is True where a score takes part."""
        return function_of(self.name)(scores, self.dim, mask=mask, **self.strengths.current())

    def resolved(self) -> Resolved:
        """The regularizer and gamma as they are now, for attention, which maps along the keys."""
        if self.dim != -1:
            raise ValueError(
                f"The mapping of an attention module must act along the keys, dim=-1. Got dim={self.dim}."
            )
        strengths = self.strengths.current()
        return Resolved(self._regularizer(strengths), strengths[GAMMA])

    def _regularizer(self, strengths: dict[str, Any]) -> Regularizer:
        return named(self.name).made(strengths)

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

    name = "softmax"

    def __init__(self, dim: int = -1, *, gamma: Strength = 1.0, learnable: Learnable = False) -> None:
        super().__init__(dim, learnable, gamma=gamma)


class Sparsemax(_Mapping):
    """See `regmax.sparsemax`; the arguments are those of `Softmax`.

    Example:
        >>> import torch, regmax
        >>> regmax.nn.Sparsemax()(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.7500, 0.2500, 0.0000])
    """

    name = "sparsemax"

    def __init__(self, dim: int = -1, *, gamma: Strength = 1.0, learnable: Learnable = False) -> None:
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

    name = "fusedmax"

    def __init__(
        self, dim: int = -1, *, lam: Strength = 0.1, gamma: Strength = 1.0, learnable: Learnable = False
    ) -> None:
        super().__init__(dim, learnable, lam=lam, gamma=gamma)


class Oscarmax(_Mapping):
    """See `regmax.oscarmax`; the arguments are those of `Fusedmax`.

    Example:
        >>> import torch, regmax
        >>> regmax.nn.Oscarmax(lam=0.1)(torch.tensor([1.0, 0.0, 0.95]))
        tensor([0.5000, 0.0000, 0.5000])
    """

    name = "oscarmax"

    def __init__(
        self, dim: int = -1, *, lam: Strength = 0.01, gamma: Strength = 1.0, learnable: Learnable = False
    ) -> None:
        super().__init__(dim, learnable, lam=lam, gamma=gamma)


class Sqpnormmax(_Mapping):
    """See `regmax.sqpnormmax`; `p` is learned within (1, 2].

    Example:
        >>> import torch, regmax
        >>> regmax.nn.Sqpnormmax(p=2.0)(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.7500, 0.2500, 0.0000])
    """

    name = "sqpnormmax"

    def __init__(
        self, dim: int = -1, *, p: Strength = 1.5, gamma: Strength = 1.0, learnable: Learnable = False
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
        self, omega: Regularizer, dim: int = -1, *, gamma: Strength = 1.0, learnable: Learnable = False
    ) -> None:
        super().__init__(dim, learnable, gamma=gamma)
        self.omega = omega

    def forward(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Weights along `dim`; `mask` is True where a score takes part."""
        return regularized_argmax(self.omega, scores, self.dim, mask=mask, **self.strengths.current())

    def _regularizer(self, strengths: dict[str, Any]) -> Regularizer:
        return self.omega


def module(name: str, **strengths: Any) -> _Mapping:
    """The module of a mapping's name; for one without its own class, that of its regularizer.

    Example:
        >>> module("fusedmax", lam=0.2)
        Fusedmax(
          dim=-1
          (strengths): Strengths(lam=0.2, gamma=1)
        )
    """
    row = named(name)
    row.check({key: value for key, value in strengths.items() if not isinstance(value, Tensor)})
    own: type[_Mapping] | None = globals().get(name.capitalize())
    if own is not None:
        return own(**strengths)
    return RegularizedArgmax(row.made(strengths), gamma=strengths.get(GAMMA, 1.0))
