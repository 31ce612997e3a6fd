"""A mapping is named by a string, a regularizer or a callable, everywhere one is accepted."""

from collections.abc import Callable
from functools import partial
from typing import Any

from regmax.functional import fusedmax, oscarmax, regularized_argmax, softmax, sparsemax, sqpnormmax
from regmax.regularizers import Regularizer

MAPPINGS: dict[str, Callable[..., Any]] = {
    "softmax": softmax,
    "sparsemax": sparsemax,
    "fusedmax": fusedmax,
    "oscarmax": oscarmax,
    "sqpnormmax": sqpnormmax,
}


def resolve(mapping: str | Regularizer | Callable[..., Any]) -> Callable[..., Any]:
    """The function `f(scores, dim, mask=...)` that a mapping's name, regularizer or callable stands for.

    Example:
        >>> import numpy as np
        >>> resolve("sparsemax")(np.array([1.0, 0.5]), -1).tolist()
        [0.75, 0.25]
    """
    if isinstance(mapping, str):
        if mapping not in MAPPINGS:
            raise ValueError(f"`mapping` must be one of {', '.join(MAPPINGS)}. Got {mapping!r}.")
        return MAPPINGS[mapping]
    if isinstance(mapping, Regularizer):
        return partial(regularized_argmax, mapping)
    if callable(mapping):
        return mapping
    raise TypeError(f"`mapping` must be a name, a regularizer or a callable. Got {type(mapping).__name__}.")
