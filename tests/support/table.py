"""The one table of mappings: every law in this folder runs over its rows.

A new regularizer gets all tests by adding one row (and its problem to `oracle.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import regmax
from regmax.mappings import MAPPINGS, NamedMapping


@dataclass(frozen=True, eq=False)
class Entry:
    """A mapping of the registry with its parameters, and the norm in which its Omega is beta-strongly convex."""

    mapping: str
    parameters: dict[str, float] = field(default_factory=dict)
    beta: float = 1.0
    norm: float = 2.0

    def __str__(self) -> str:
        return "-".join([self.mapping, *(f"{name}={value:g}" for name, value in self.parameters.items())])

    def __call__(self, x: Any, dim: int = -1, **options: Any) -> Any:
        """The public function of this row, `regmax.fusedmax(x, dim, lam=0.1, ...)`."""
        return getattr(regmax, self.mapping)(x, dim, **{**self.parameters, **options})

    @property
    def omega(self) -> Any:
        return self.row.regularizer(**self.parameters)

    @property
    def row(self) -> NamedMapping:
        return MAPPINGS[self.mapping]

    @property
    def dual_norm(self) -> float:
        return np.inf if self.norm == 1 else self.norm / (self.norm - 1)

    @property
    def positional(self) -> bool:
        """Whether the order of the scores matters, not only their values."""
        return self.row.segments

    @property
    def fuses(self) -> bool:
        return self.parameters.get("lam", 0.0) > 0

    @property
    def sparse(self) -> bool:
        """Whether weights can be exactly zero: alpha = 1 is softmax."""
        return self.row.sparse and self.parameters.get("alpha") != 1


TABLE = (
    Entry("softmax", norm=1),
    Entry("sparsemax"),
    Entry("fusedmax", {"lam": 0.0}),
    Entry("fusedmax", {"lam": 0.1}),
    Entry("fusedmax", {"lam": 1.0}),
    Entry("oscarmax", {"lam": 0.0}),
    Entry("oscarmax", {"lam": 0.01}),
    Entry("oscarmax", {"lam": 0.1}),
    Entry("sqpnormmax", {"p": 1.1}, beta=0.1, norm=1.1),
    Entry("sqpnormmax", {"p": 1.5}, beta=0.5, norm=1.5),
    Entry("sqpnormmax", {"p": 2.0}),
    Entry("entmax", {"alpha": 1.0}, norm=1),
    Entry("entmax", {"alpha": 1.25}),
    Entry("entmax", {"alpha": 1.5}),
    Entry("entmax", {"alpha": 2.0}),
)

# One row of each mapping, with the parameters that the paper uses.
DEFAULTS = tuple(entry for entry in TABLE if {"gamma": 1.0, **entry.parameters} == entry.row.strengths)
