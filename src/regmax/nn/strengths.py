"""Strengths that can be learned: an unconstrained parameter behind each, so that no step leaves the bounds.

gamma and lam are softplus(raw), p is 1 + sigmoid(raw); each keeps a little away from the bound that is not allowed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

_LEAST = 1e-6  # gamma and lam
_LEAST_P = 1e-3  # p - 1: under it powers 1 / (p - 1) leave float32


class _Link(NamedTuple):
    """raw -> strength and back."""

    forward: Callable[[Tensor], Tensor]
    inverse: Callable[[Tensor], Tensor]
    bounds: str


def _softplus_inverse(strength: Tensor) -> Tensor:
    return strength + torch.log(-torch.expm1(-strength))


_POSITIVE = _Link(
    lambda raw: functional.softplus(raw) + _LEAST,
    lambda strength: _softplus_inverse(strength - _LEAST),
    f"above {_LEAST:g}",
)


def _norm_inverse(p: Tensor) -> Tensor:
    share = (p - 1 - _LEAST_P) / (1 - _LEAST_P)
    # p = 2 may be told, but a finite raw only comes close; beyond it there is none.
    return torch.logit(torch.where(p <= 2, share.clamp(max=1 - 1e-6), torch.nan))


_NORM = _Link(
    lambda raw: 1 + _LEAST_P + (1 - _LEAST_P) * torch.sigmoid(raw),
    _norm_inverse,
    f"above {1 + _LEAST_P:g} and at most 2",
)
_LINKS = {"gamma": _POSITIVE, "lam": _POSITIVE, "p": _NORM}


class Strengths(torch.nn.Module):
    """The strengths of a mapping by name: some learned, some fixed.

    Args:
        values: the initial strengths, numbers or tensors that broadcast against the scores.
        learnable: the names of those to learn, or True for all.
    """

    def __init__(self, values: dict[str, Any], learnable: bool | str | tuple[str, ...]) -> None:
        super().__init__()
        self.fixed = {}
        names = _learnable_names(learnable, values)
        for name, value in values.items():
            if name in names:
                self.register_parameter(f"raw_{name}", _raw(name, value))
            elif isinstance(value, Tensor):
                self.register_buffer(f"fixed_{name}", value)
            else:
                self.fixed[name] = value
        self._names = tuple(values)

    def current(self) -> dict[str, Any]:
        """The strengths as keyword arguments of the mapping."""
        return {name: self[name] for name in self._names}

    def __getitem__(self, name: str) -> Any:
        raw = getattr(self, f"raw_{name}", None)
        if raw is not None:
            return _LINKS[name].forward(raw)
        return self.fixed[name] if name in self.fixed else getattr(self, f"fixed_{name}")

    def extra_repr(self) -> str:
        """The strengths as they are now."""
        return ", ".join(f"{name}={_shown(self[name])}" for name in self._names)


def _raw(name: str, value: Any) -> torch.nn.Parameter:
    link = _LINKS[name]
    raw = link.inverse(torch.as_tensor(value, dtype=torch.get_default_dtype()))
    if not bool(raw.isfinite().all()):
        raise ValueError(f"A learnable `{name}` must start {link.bounds}. Got {value}.")
    return torch.nn.Parameter(raw)


def _learnable_names(learnable: bool | str | tuple[str, ...], values: dict[str, Any]) -> tuple[str, ...]:
    if isinstance(learnable, bool):
        return tuple(values) if learnable else ()
    names = (learnable,) if isinstance(learnable, str) else tuple(learnable)
    if unknown := [name for name in names if name not in values]:
        raise ValueError(f"`learnable` must name some of {', '.join(values)}. Got {unknown[0]!r}.")
    return names


def _shown(value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"{value:g}"
    return f"{value.item():g}" if value.numel() == 1 else f"tensor{tuple(value.shape)}"
