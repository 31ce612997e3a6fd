"""The meaning of an argument `mapping`: one resolver for every function that accepts a mapping."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from regmax import functional
from regmax.arrays import NUMBER, is_module
from regmax.mappings import MAPPINGS, named, parse
from regmax.regularizers import NegativeEntropy, Regularizer

# A name with or without strengths, a regularizer, a module, or a function f(scores, dim, mask=...).
MappingLike = str | Regularizer | Callable[..., Any]


@dataclass(frozen=True)
class Resolved:
    """Pi of gamma Omega if the regularizer is known, else a function of scores, dim and mask."""

    omega: Regularizer | None = None
    gamma: Any = 1.0
    function: Callable[..., Any] | None = None

    @property
    def is_softmax(self) -> bool:
        """Whether this is softmax at one temperature."""
        return isinstance(self.omega, NegativeEntropy) and isinstance(self.gamma, NUMBER)

    def __call__(self, scores: Any, dim: int = -1, *, mask: Any = None) -> Any:
        """The weights."""
        if self.omega is not None:
            return functional.regularized_argmax(self.omega, scores, dim, gamma=self.gamma, mask=mask)
        assert self.function is not None
        # A function of another library may not accept a mask, so pass one only if it is given.
        return self.function(scores, dim) if mask is None else self.function(scores, dim, mask=mask)


class MappingModule:
    """A module with a regularizer; the mappings of `regmax.nn` are such modules."""

    def resolved(self) -> Resolved:
        """The regularizer and gamma at the current strengths."""
        raise NotImplementedError


def resolve(mapping: MappingLike) -> Resolved:
    """The regularizer and gamma of a mapping, or its function if the regularizer is not known.

    Args:
        mapping: a name (`"fusedmax"`, `"fusedmax,lam=0.2,gamma=2"`), a regularizer, a module, a function of regmax or
            a partial of one, or any function `f(scores, dim, mask=...)`.

    Returns:
        A record that is callable as `f(scores, dim, mask=...)`.

    Example:
        >>> import numpy as np, regmax
        >>> resolve("fusedmax,lam=0.2").omega, resolve(partial(regmax.fusedmax, lam=0.2, gamma=2.0)).gamma
        (FusedLasso(lam=0.2), 2.0)
        >>> resolve("sparsemax")(np.array([1.0, 0.5])).tolist()
        [0.75, 0.25]
    """
    if isinstance(mapping, Resolved):
        return mapping
    if isinstance(mapping, str):
        row, strengths = parse(mapping)
        return Resolved(row.made(strengths), strengths.get("gamma", 1.0))
    if isinstance(mapping, Regularizer):
        return Resolved(mapping)
    if isinstance(mapping, MappingModule):
        return mapping.resolved()
    if is_module(mapping):
        return Resolved(function=_ModuleFunction(mapping))
    if callable(mapping):
        return _own(mapping) or Resolved(function=mapping)
    raise TypeError(
        f"`mapping` must be a name, a regularizer, a module or a callable. Got {type(mapping).__name__}."
    )


def function_of(name: str) -> Callable[..., Any]:
    """The public function of a mapping's name, or a function made from its regularizer if there is none.

    Example:
        >>> function_of("fusedmax").__name__
        'fusedmax'
    """
    row = named(name)
    return getattr(functional, name, None) or partial(_by_strengths, row.name)


def _by_strengths(
    name: str, scores: Any, dim: int = -1, *, gamma: Any = 1.0, mask: Any = None, **strengths: Any
) -> Any:
    omega = named(name).regularizer(**strengths)
    return functional.regularized_argmax(omega, scores, dim, gamma=gamma, mask=mask)


@dataclass(frozen=True)
class _ModuleFunction:
    """A module of another library as a function: it has its own `dim`, and may not accept a mask."""

    module: Any

    def __call__(self, scores: Any, dim: int, **mask: Any) -> Any:
        return self.module(scores, **mask)


def _own(function: Any) -> Resolved | None:
    """The regularizer of a function of regmax, or of a partial of one; None for other functions."""
    strengths: dict[str, Any] = {}
    arguments: tuple[Any, ...] = ()
    if isinstance(function, partial):
        function, arguments, strengths = function.func, function.args, dict(function.keywords)
    gamma = strengths.pop("gamma", 1.0)
    if function is functional.regularized_argmax and len(arguments) == 1 and not strengths:
        return Resolved(functional.regularizer_of("regularized_argmax(omega, ...)", arguments[0]), gamma)
    name = getattr(function, "__name__", "")
    row = MAPPINGS.get(name)
    if row is None or arguments or function is not getattr(functional, name, None):
        return None
    if not set(strengths) <= {row.strength}:
        return None
    return Resolved(row.made(strengths), gamma)
