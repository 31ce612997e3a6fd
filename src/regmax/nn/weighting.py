"""The mapping of an attention module: a name, a regularizer, a callable, or a module of this package."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from regmax.functional import regularized_argmax
from regmax.names import resolve
from regmax.nn.mappings import RegularizedArgmax, _Mapping
from regmax.regularizers import Regularizer

Mapping = str | Regularizer | Callable[..., Any] | torch.nn.Module


def as_weighting(mapping: Mapping) -> str | Regularizer | Callable[..., Any]:
    """The mapping as `regmax.attention` takes it, with a module's strengths as they are now.

    Example:
        >>> import torch, regmax
        >>> weigh = as_weighting(regmax.nn.Sparsemax())
        >>> weigh(torch.tensor([1.0, 0.5]), -1, mask=None)
        tensor([0.7500, 0.2500])
    """
    if not isinstance(mapping, _Mapping):
        resolve(mapping)  # raises if it stands for nothing
        return mapping
    if mapping.dim != -1:
        raise ValueError(
            f"The mapping of an attention module must act along the keys, dim=-1. Got dim={mapping.dim}."
        )
    # The function and its strengths, not the module: that is what the sparse kernels can look into.
    if isinstance(mapping, RegularizedArgmax):
        return partial(regularized_argmax, mapping.omega, **mapping.strengths.current())
    return partial(type(mapping).verb, **mapping.strengths.current())


def as_function(mapping: Mapping) -> Callable[..., Any]:
    """The mapping as a function `f(scores, dim, mask=...)`.

    Example:
        >>> import torch, regmax
        >>> as_function(regmax.SquaredNorm())(torch.tensor([1.0, 0.5]), -1, mask=None)
        tensor([0.7500, 0.2500])
    """
    return resolve(as_weighting(mapping))
