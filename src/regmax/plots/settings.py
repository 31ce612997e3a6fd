"""A mapping with its strengths, as written on a command line: `fusedmax,lam=0.1`."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regmax.names import MAPPINGS

PARAMETERS = {
    "softmax": {"gamma": 1.0},
    "sparsemax": {"gamma": 1.0},
    "fusedmax": {"gamma": 1.0, "lam": 0.1},
    "oscarmax": {"gamma": 1.0, "lam": 0.01},
    "sqpnormmax": {"gamma": 1.0, "p": 1.5},
}
_SYMBOLS = {"gamma": "γ", "lam": "λ", "p": "p"}


@dataclass(frozen=True)
class Setting:
    """One of the five mappings, and the strengths that differ from its defaults.

    Example:
        >>> setting = Setting.parse("fusedmax,lam=0.2")
        >>> setting.label
        'fusedmax, λ = 0.2'
        >>> setting(np.array([[1.0, 0.9, 0.6]])).round(3).tolist()
        [[0.35, 0.35, 0.3]]
    """

    mapping: str
    strengths: tuple[tuple[str, float], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Setting":
        """Read `mapping` or `mapping,name=number,...`."""
        mapping, *pairs = text.replace(" ", "").split(",")
        if mapping not in PARAMETERS:
            raise ValueError(f"A mapping is one of {', '.join(PARAMETERS)}. Got {mapping!r}.")
        strengths = []
        for pair in pairs:
            name, _, value = pair.partition("=")
            if name not in PARAMETERS[mapping]:
                known = ", ".join(PARAMETERS[mapping])
                raise ValueError(f"{mapping} has the strengths {known}. Got {pair!r} in {text!r}.")
            try:
                strengths.append((name, float(value)))
            except ValueError:
                raise ValueError(
                    f"A strength is a number, e.g. `{name}=0.1`. Got {pair!r} in {text!r}."
                ) from None
        setting = cls(mapping, tuple(strengths))
        setting(np.zeros((1, 1)))  # the mapping itself refuses strengths out of its range
        return setting

    @property
    def parameters(self) -> dict[str, float]:
        """Every strength of the mapping, by name."""
        return {**PARAMETERS[self.mapping], **dict(self.strengths)}

    @property
    def label(self) -> str:
        """The mapping and its strengths; gamma only if it is not 1."""
        shown = {name: value for name, value in self.parameters.items() if (name, value) != ("gamma", 1.0)}
        return ", ".join([self.mapping, *(f"{_SYMBOLS[name]} = {value:g}" for name, value in shown.items())])

    @property
    def clustered(self) -> bool:
        """Whether equal weights form clusters rather than segments."""
        return self.mapping == "oscarmax"

    def __call__(self, scores: NDArray[Any]) -> NDArray[np.float64]:
        """The weights of every row; NaN if a score is deleted (-inf), which differs from weight zero."""
        scores = np.asarray(scores, np.float64)
        y = MAPPINGS[self.mapping](scores, **self.parameters)
        return np.where(np.isneginf(scores), np.nan, y)

    def __str__(self) -> str:
        return ",".join([self.mapping, *(f"{name}={value:g}" for name, value in self.parameters.items())])
