"""A mapping with its strengths, as written on a command line: `fusedmax,lam=0.1`."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regmax.mappings import NamedMapping, named, parse, row_of
from regmax.resolver import function_of


@dataclass(frozen=True)
class Setting:
    """A named mapping, and the strengths that differ from its defaults.

    Example:
        >>> setting = Setting.parse("fusedmax,lam=0.2")
        >>> setting.label
        'fusedmax, λ = 0.2'
        >>> setting(np.array([[1.0, 0.9, 0.6]])).round(3).tolist()
        [[0.35, 0.35, 0.3]]
    """

    mapping: str
    strengths: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        self.row.check(dict(self.strengths))

    @property
    def row(self) -> NamedMapping:
        """The mapping's row in the registry."""
        return named(self.mapping)

    @classmethod
    def parse(cls, text: str) -> "Setting":
        """Read `mapping` or `mapping,name=number,...`."""
        row, strengths = parse(text)
        return cls(row.name, tuple(strengths.items()))

    @property
    def parameters(self) -> dict[str, float]:
        """Every strength of the mapping, by name."""
        return {**self.row.strengths, **dict(self.strengths)}

    @property
    def label(self) -> str:
        """The mapping and its strengths; gamma only if it is not 1."""
        shown = {name: value for name, value in self.parameters.items() if (name, value) != ("gamma", 1.0)}
        symbols = self.row.symbols
        return ", ".join([self.mapping, *(f"{symbols[name]} = {value:g}" for name, value in shown.items())])

    @property
    def clustered(self) -> bool:
        """Whether equal weights form clusters rather than segments."""
        return self.row.clusters

    def __call__(self, scores: NDArray[Any]) -> NDArray[np.float64]:
        """The weights of every row; NaN if a score is deleted (-inf), which differs from weight zero."""
        scores = np.asarray(scores, np.float64)
        y = function_of(self.mapping)(scores, **self.parameters)
        return np.where(np.isneginf(scores), np.nan, y)

    def __str__(self) -> str:
        return ",".join([self.mapping, *(f"{name}={value:g}" for name, value in self.parameters.items())])


def titled(name: str, omega: Any, gamma: float = 1.0) -> str:
    """A mapping's name with its strengths; gamma only if it is not 1. A regularizer without a name keeps the given one.

    Example:
        >>> from regmax import FusedLasso
        >>> titled("fusedmax", FusedLasso(lam=0.2)), titled("fusedmax", FusedLasso(lam=0.2), gamma=2.0)
        ('fusedmax, λ = 0.2', 'fusedmax, λ = 0.2, γ = 2')
    """
    row = row_of(omega)
    strength = None if row is None else row.strength
    own = (
        []
        if row is None or strength is None
        else [f"{row.symbol or strength} = {getattr(omega, strength):g}"]
    )
    return ", ".join([name, *own, *([] if gamma == 1.0 else [f"γ = {gamma:g}"])])
