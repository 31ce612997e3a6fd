"""Fields of a configuration that describe themselves: a sentence, a group, and what a value must be."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from regmax.experiments.errors import ExperimentError

GROUPS = ("data", "attention", "model", "training", "decoding")
# Sizes and counts beyond this are typing errors, and overflow in torch.
_LARGEST = 2**31 - 1


@dataclass(frozen=True)
class Requirement:
    """What a value must be, in words and as a test."""

    text: str
    holds: Callable[[Any], bool]


Requirements = tuple[Requirement, ...]
_INT = Requirement("below 2**31", lambda value: value <= _LARGEST)
_FINITE = Requirement("finite", lambda value: value < math.inf)
_ABOVE_ZERO = Requirement("positive", lambda value: value > 0)
_NOT_BELOW_ZERO = Requirement("non-negative", lambda value: value >= 0)

COUNT: Requirements = (_ABOVE_ZERO, _INT)
COUNT_OR_ZERO: Requirements = (_NOT_BELOW_ZERO, _INT)
POSITIVE: Requirements = (_ABOVE_ZERO, _FINITE)
NON_NEGATIVE: Requirements = (_NOT_BELOW_ZERO, _FINITE)
SHARE: Requirements = (Requirement("in [0, 1]", lambda value: 0 <= value <= 1),)
PROBABILITY: Requirements = (Requirement("in [0, 1)", lambda value: 0 <= value < 1),)
ALPHA: Requirements = (Requirement("in [1, 2]", lambda value: 1 <= value <= 2),)
NORM: Requirements = (Requirement("in (1, 2]", lambda value: 1 < value <= 2),)
SEED: Requirements = (Requirement("in [0, 2**63)", lambda value: 0 <= value < 2**63),)


def one_of(*names: str) -> Requirements:
    """The requirement that a value is one of these."""
    text = " or ".join(names) if len(names) == 2 else f"one of {', '.join(names)}"
    return (Requirement(text, lambda value: value in names),)


def option(default: Any, text: str, group: str, must_be: Requirements = ()) -> Any:
    """A field of a dataclass, its sentence for the command line, and what its value must be."""
    return dataclasses.field(default=default, metadata={"help": text, "group": group, "must be": must_be})


def check_fields(config: Any) -> None:
    """Raise for the first field that is not what it must be; None is a field that is not filled in."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        for must_be in field.metadata.get("must be", ()):
            if value is not None and not _holds(must_be, value):
                raise ExperimentError(f"`{field.name}` must be {must_be.text}. Got {value!r}.")


def _holds(must_be: Requirement, value: Any) -> bool:
    try:
        return must_be.holds(value)
    except TypeError:  # a configuration file may hold anything
        return False
