"""What the argument `mapping` stands for: a regularizer with gamma where it is known, else a function of the scores."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import Module

from regmax.names import MAPPINGS, resolve
from regmax.regularizers import (
    FusedLasso,
    KernelRegularizer,
    NegativeEntropy,
    Oscar,
    Regularizer,
    SquaredNorm,
    SquaredPNorm,
)
from regmax.sparse_attention.dense import Weigh

Mapping = str | Regularizer | Callable[..., Any]

_STRENGTHS = {"lam", "p", "gamma"}
_REGULARIZERS: dict[str, type[KernelRegularizer]] = {
    "softmax": NegativeEntropy,
    "sparsemax": SquaredNorm,
    "fusedmax": FusedLasso,
    "oscarmax": Oscar,
    "sqpnormmax": SquaredPNorm,
}


class Known(NamedTuple):
    """Pi of gamma omega."""

    omega: KernelRegularizer
    gamma: Any

    @property
    def is_softmax(self) -> bool:
        """Whether this is softmax at one temperature."""
        return isinstance(self.omega, NegativeEntropy) and isinstance(self.gamma, int | float)


def known(mapping: Mapping) -> Known | None:
    """The regularizer behind a name, a regularizer, a function of this library or a partial of one.

    Example:
        >>> import regmax
        >>> known(partial(regmax.fusedmax, lam=0.2, gamma=2.0))
        Known(omega=FusedLasso(lam=0.2), gamma=2.0)
    """
    if isinstance(mapping, KernelRegularizer):
        return Known(mapping, 1.0)
    function: Any = resolve(mapping)
    strengths: dict[str, Any] = {}
    if isinstance(function, partial) and not function.args and set(function.keywords) <= _STRENGTHS:
        function, strengths = function.func, dict(function.keywords)
    for name, regularizer in _REGULARIZERS.items():
        if function is MAPPINGS[name]:
            gamma = strengths.pop("gamma", 1.0)
            return Known(regularizer(**strengths), gamma)
    return None


def weigher(mapping: Mapping) -> Weigh:
    """The mapping as a function of scores and mask, along the last dimension."""
    if isinstance(mapping, Module):
        return lambda scores, mask: mapping(scores, mask=mask)
    function = resolve(mapping)

    def weigh(scores: Tensor, mask: Tensor | None) -> Tensor:
        # A function of another library may know nothing of masks, and does without where there is none.
        return function(scores, -1) if mask is None else function(scores, -1, mask=mask)

    return weigh
