"""Module twins of the mappings."""

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from regmax.arrays import A, AnyArray, Array, Strength
from regmax.functional import regularized_argmax
from regmax.mappings import GAMMA, named, parse, row_of
from regmax.nn.strengths import Strengths
from regmax.regularizers import KernelRegularizer, Regularizer
from regmax.resolver import MappingLike, MappingModule, Resolved, function_of, resolve

Learnable = bool | str | tuple[str, ...]


class _Mapping(torch.nn.Module, MappingModule):
    """A mapping along `dim`, with its strengths."""

    name: ClassVar[str]  # in the registry

    if TYPE_CHECKING:  # torch's accepts and returns anything

        def __call__(self, scores: Array[A], mask: AnyArray | None = None) -> A: ...

    def __init__(self, dim: int, learnable: Learnable, **strengths: Any) -> None:
        super().__init__()
        self.dim = dim
        self.strengths = Strengths(strengths, learnable)

    def forward(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Weights along `dim`; `mask` is boolean, True = keep."""
        return function_of(self.name)(scores, self.dim, mask=mask, **self.strengths.current())

    def resolved(self) -> Resolved:
        """The current regularizer and gamma, for attention, which maps along the keys."""
        if self.dim != -1:
            raise ValueError(
                f"The mapping of an attention module must act along the keys, dim=-1. Got dim={self.dim}."
            )
        strengths = self.strengths.current()
        return Resolved(self._regularizer(strengths), strengths[GAMMA])

    def _regularizer(self, strengths: dict[str, Any]) -> Regularizer:
        return named(self.name).made(strengths)

    @property
    def gamma(self) -> Any:
        """The current strength of the regularizer: a number, or a tensor if given as one or learned."""
        return self.strengths["gamma"]

    def extra_repr(self) -> str:
        """`dim`; the strengths have their own repr."""
        return f"dim={self.dim}"


class _WithLam(_Mapping):
    @property
    def lam(self) -> Any:
        """The current strength of the penalty: a number, or a tensor if given as one or learned."""
        return self.strengths["lam"]


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


class Fusedmax(_WithLam):
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


class Oscarmax(_WithLam):
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

    @property
    def p(self) -> Any:
        """The current norm: a number, or a tensor if given as one or learned."""
        return self.strengths["p"]


class Entmax(_Mapping):
    """See `regmax.entmax`; `alpha` is learned within [1, 2].

    Example:
        >>> import torch, regmax
        >>> entmax = regmax.nn.Entmax(alpha=torch.full((8, 1, 1), 1.5), learnable="alpha")  # one per head
        >>> entmax(torch.zeros(2, 8, 5, 7)).shape
        torch.Size([2, 8, 5, 7])
    """

    name = "entmax"

    def __init__(
        self, dim: int = -1, *, alpha: Strength = 1.5, gamma: Strength = 1.0, learnable: Learnable = False
    ) -> None:
        super().__init__(dim, learnable, alpha=alpha, gamma=gamma)

    @property
    def alpha(self) -> Any:
        """The current alpha: a number, or a tensor if given as one or learned."""
        return self.strengths["alpha"]


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
        """Weights along `dim`; `mask` is boolean, True = keep."""
        strengths = self.strengths.current()
        return regularized_argmax(self._regularizer(strengths), scores, self.dim, mask=mask, **strengths)

    def _regularizer(self, strengths: dict[str, Any]) -> Regularizer:
        factor = self.strengths.factor  # of an annealed lam
        if factor == 1.0 or not isinstance(self.omega, KernelRegularizer) or self.omega.strength != "lam":
            return self.omega
        return self.omega.with_theta(self.omega.theta * factor)


def module(name: str, **strengths: Any) -> _Mapping:
    """The module of a mapping's name; `RegularizedArgmax` if the mapping has no module class.

    Example:
        >>> module("fusedmax", lam=0.2)
        Fusedmax(
          dim=-1
          (strengths): Strengths(lam=0.2, gamma=1)
        )
    """
    row = named(name)
    row.check(
        {
            key: value
            for key, value in strengths.items()
            if not isinstance(value, Tensor) and key != "learnable"
        }
    )
    own: type[_Mapping] | None = globals().get(name.capitalize())
    if own is not None:
        return own(**strengths)
    return RegularizedArgmax(row.made(strengths), gamma=strengths.get(GAMMA, 1.0))


def as_module(mapping: MappingLike) -> MappingLike:
    """The module of a name, or of a regularizer that has one; anything else unchanged.

    As a module its strengths are found by `AnnealGamma` and shown in the model's repr.

    Example:
        >>> import regmax
        >>> as_module("fusedmax,lam=0.2").lam, as_module(regmax.SquaredPNorm(1.3)).p
        (0.2, 1.3)
    """
    resolve(mapping)  # a wrong name raises here, not at the first call
    if isinstance(mapping, str):
        row, strengths = parse(mapping)
        return module(row.name, **strengths)
    row_or_none = row_of(mapping)
    if row_or_none is None or not isinstance(mapping, KernelRegularizer) or isinstance(mapping.theta, Tensor):
        return mapping
    strength = row_or_none.strength
    return module(row_or_none.name, **({} if strength is None else {strength: mapping.theta}))


class HasMapping(torch.nn.Module):
    """A module whose attribute `mapping` is made a module if it is given by name or regularizer."""

    mapping: Any

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "mapping":
            value = as_module(value)
            self._modules.pop(name, None)  # torch refuses to replace a module by a function
            self.__dict__.pop(name, None)
        super().__setattr__(name, value)
