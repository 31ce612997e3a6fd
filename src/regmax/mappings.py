"""The registry: one row per named mapping, and the syntax of mapping names.

Everything that lists the mappings reads `MAPPINGS`: the modules, attention, figures, commands, benchmarks and tests.
`docs/add-a-regularizer.md` explains how to add a row.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from regmax.kernels import KERNELS
from regmax.regularizers import (
    FusedLasso,
    KernelRegularizer,
    NegativeEntropy,
    NegativeTsallisEntropy,
    Oscar,
    SquaredNorm,
    SquaredPNorm,
)
from regmax.regularizers.base import Bounds

GAMMA = "gamma"
_SIMILAR = 0.75  # the least similarity, from 0 to 1, of a misspelt name and the suggestion


@dataclass(frozen=True)
class NamedMapping:
    """A row of the registry. Its strength's name, default and bounds, and its kernel, are the regularizer's."""

    name: str
    regularizer: type[KernelRegularizer]
    symbol: str = ""  # of its strength, in formulas
    sparsemax_at: float | None = None  # the strength that makes it sparsemax
    sparse: bool = True  # some weights are exactly zero
    javascript: bool = True  # the explorer implements it; other mappings are not offered there

    @property
    def kernel(self) -> str:
        """The kernel that computes it."""
        return self.regularizer.kernel

    @property
    def strength(self) -> str | None:
        """The name of its strength, `lam`, `p` or `alpha`; None if gamma is the only one."""
        return self.regularizer.strength

    @property
    def default(self) -> float | None:
        """The strength's default."""
        return None if self.strength is None else getattr(self.regularizer, self.strength)

    @property
    def strengths(self) -> dict[str, float]:
        """The defaults of all strengths by name, gamma first."""
        own = {} if self.strength is None or self.default is None else {self.strength: self.default}
        return {GAMMA: 1.0, **own}

    @property
    def symbols(self) -> dict[str, str]:
        """The display symbol of each strength."""
        return {GAMMA: "γ", **({} if self.strength is None else {self.strength: self.symbol})}

    @property
    def segments(self) -> bool:
        """Whether adjacent equal weights form groups."""
        return KERNELS[self.kernel].groups == "segments"

    @property
    def clusters(self) -> bool:
        """Whether equal weights form groups, adjacent or not."""
        return KERNELS[self.kernel].groups == "clusters"

    def made(self, strengths: Mapping[str, Any] | None = None) -> KernelRegularizer:
        """The regularizer at these strengths, or at its default strength; gamma is ignored."""
        given = {} if strengths is None else strengths
        return self.regularizer.made(given.get(self.strength or "", self.default))

    def check(self, strengths: Mapping[str, Any]) -> None:
        """Raise unless these are strengths of this mapping and in bounds."""
        for name, value in strengths.items():
            if name not in self.strengths:
                raise ValueError(
                    f"`{self.name}` has the strengths {', '.join(self.strengths)}. Got {f'{name}={value}'!r}."
                )
            if name == GAMMA:
                Bounds(f"{self.name}(..., gamma=...)", above=0.0).check(value)
        self.made(strengths)


MAPPINGS: dict[str, NamedMapping] = {
    row.name: row
    for row in (
        NamedMapping("softmax", NegativeEntropy, sparse=False),
        NamedMapping("sparsemax", SquaredNorm),
        NamedMapping("fusedmax", FusedLasso, symbol="λ", sparsemax_at=0.0),
        NamedMapping("oscarmax", Oscar, symbol="λ", sparsemax_at=0.0),
        NamedMapping("sqpnormmax", SquaredPNorm, symbol="p", sparsemax_at=2.0),
        NamedMapping("entmax", NegativeTsallisEntropy, symbol="α", sparsemax_at=2.0),
    )
}


def named(name: str) -> NamedMapping:
    """The row of a name; the error for an unknown name suggests a similar one.

    Example:
        >>> named("sqpnormmax").strengths
        {'gamma': 1.0, 'p': 1.5}
    """
    found = MAPPINGS.get(name)
    if found is None:
        close = get_close_matches(name.lower(), MAPPINGS, n=1, cutoff=_SIMILAR)
        hint = f": did you mean {close[0]}?" if close else "."
        raise ValueError(f"`mapping` must be one of {', '.join(MAPPINGS)}. Got {name!r}{hint}")
    return found


def parse(text: str) -> tuple[NamedMapping, dict[str, float]]:
    """Parse `name` or `name,strength=number,...` into the mapping and the given strengths.

    Example:
        >>> row, strengths = parse("fusedmax,lam=0.2,gamma=2")
        >>> row.made(strengths), strengths
        (FusedLasso(lam=0.2), {'lam': 0.2, 'gamma': 2.0})
    """
    name, *pairs = text.replace(" ", "").split(",")
    row = named(name)
    strengths: dict[str, float] = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        if key in strengths:
            raise ValueError(f"`{name}` takes each strength once. Got {key!r} twice in {text!r}.")
        if key not in row.strengths:
            raise ValueError(
                f"`{name}` has the strengths {', '.join(row.strengths)}. Got {pair!r} in {text!r}."
            )
        try:
            strengths[key] = float(value)
        except ValueError:
            raise ValueError(
                f"`{name}(..., {key}=...)` must be a number. Got {pair!r} in {text!r}."
            ) from None
    row.check(strengths)
    return row, strengths


def row_of(omega: object) -> NamedMapping | None:
    """The row of a regularizer; None for one without a name."""
    return next((row for row in MAPPINGS.values() if row.regularizer is type(omega)), None)


def at(strengths: Mapping[str, float], *, without: tuple[str, ...] = ()) -> dict[str, KernelRegularizer]:
    """The regularizer of every mapping, at the strength given under the mapping's name or at its default.

    Example:
        >>> at({"fusedmax": 0.2}, without=("oscarmax", "sqpnormmax", "entmax"))
        {'softmax': NegativeEntropy(), 'sparsemax': SquaredNorm(), 'fusedmax': FusedLasso(lam=0.2)}
    """
    for name in (*strengths, *without):
        named(name)
    rows = (row for row in MAPPINGS.values() if row.name not in without)
    return {row.name: row.regularizer.made(strengths.get(row.name, row.default)) for row in rows}
