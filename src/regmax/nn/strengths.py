"""Learnable strengths: each is a function of an unconstrained parameter, so that no step leaves the bounds.

A strength without upper bound (gamma, lam) is softplus(raw), one in an interval (p, alpha) a multiple of sigmoid(raw).
Each stays slightly above a lower bound that is not allowed or has no gradient.
"""

from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from regmax.mappings import MAPPINGS
from regmax.regularizers.base import Bounds

_LEAST = 1e-6  # above the lower bound of gamma and lam
_LEAST_INSIDE = 1e-3  # above that of an open interval: for p - 1 < 1e-3 powers 1 / (p - 1) exceed float32
_EDGE = 1e-6  # the initial distance from a bound that is allowed, as a share of the interval


class _Link(NamedTuple):
    """raw -> strength and back."""

    forward: Callable[[Tensor], Tensor]
    inverse: Callable[[Tensor], Tensor]
    bounds: str


def _softplus_inverse(strength: Tensor) -> Tensor:
    return strength + torch.log(-torch.expm1(-strength))


def _half_line(above: float) -> _Link:
    least = above + _LEAST
    return _Link(
        lambda raw: functional.softplus(raw) + least,
        lambda strength: _softplus_inverse(strength - least),
        f"above {least:g}",
    )


def _interval(bounds: Bounds) -> _Link:
    up_to = bounds.up_to
    least = bounds.above if bounds.closed else bounds.above + _LEAST_INSIDE
    width = up_to - least

    def inverse(strength: Tensor) -> Tensor:
        share = (strength - least) / width
        # A bound that is allowed may be given, but a finite raw only approaches it; beyond it raw is NaN.
        share = share.clamp(_EDGE if bounds.closed else 0.0, 1 - _EDGE)
        allowed = (strength >= least) & (strength <= up_to)
        return torch.logit(torch.where(allowed, share, torch.nan))

    text = f"from {least:g} to {up_to:g}" if bounds.closed else f"above {least:g} and at most {up_to:g}"
    return _Link(lambda raw: least + width * torch.sigmoid(raw), inverse, text)


def _link(name: str) -> _Link:
    """The parametrization of a strength, by its bounds in the registry."""
    owners = (row.regularizer.bounds for row in MAPPINGS.values() if row.strength == name)
    bounds = next(owners, None)
    if bounds is None:  # gamma
        return _half_line(0.0)
    return _half_line(bounds.above) if bounds.up_to == inf else _interval(bounds)


class Strengths(torch.nn.Module):
    """The strengths of a mapping by name: some learned, some fixed.

    A fixed gamma that was annealed, and the factors that schedules put on lam, are in the state dict from then on, so
    that a checkpoint gives the same weights in a model without a schedule.

    Args:
        values: the initial strengths, numbers or tensors that broadcast against the scores.
        learnable: the names of those to learn, or True for all.
    """

    def __init__(self, values: dict[str, Any], learnable: bool | str | tuple[str, ...]) -> None:
        super().__init__()
        self.fixed: dict[str, Any] = {}
        self.annealed: dict[str, float] = {}  # gamma itself, and the factors of lam, by schedule
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

    @property
    def factor(self) -> float:
        """The factor by which schedules multiply lam; 1 without a schedule."""
        return self.annealed.get("lam", 1.0) * self.annealed.get("growth", 1.0)

    def anneal(self, gamma: float, factor: float) -> None:
        """Set a fixed gamma, and the factor of lam that holds the penalty."""
        self.annealed |= {"gamma": gamma, "lam": factor}

    def grow(self, factor: float) -> None:
        """Set the factor of a lam that grows."""
        self.annealed["growth"] = factor

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> Any:
        if name == "gamma" and name in self.annealed:
            return self.annealed[name]
        raw = getattr(self, f"raw_{name}", None)
        if raw is not None:
            value = _link(name).forward(raw)
        else:
            value = self.fixed[name] if name in self.fixed else getattr(self, f"fixed_{name}")
        return value if name != "lam" or self.factor == 1.0 else value * self.factor

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, value in self.annealed.items():
            destination[f"{prefix}annealed_{name}"] = torch.tensor(value, dtype=torch.float64)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *options: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *options)
        names = ("growth", *(("gamma", "lam") if "gamma" in self.fixed else ()))
        found = {name: key for name in names if (key := f"{prefix}annealed_{name}") in state_dict}
        if found:
            self.annealed = {name: float(state_dict[key]) for name, key in found.items()}
            unexpected_keys = options[3]
            unexpected_keys[:] = [key for key in unexpected_keys if key not in found.values()]

    def extra_repr(self) -> str:
        """The current strengths."""
        return ", ".join(f"{name}={_shown(self[name])}" for name in self._names)


def _raw(name: str, value: Any) -> torch.nn.Parameter:
    link = _link(name)
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
    if value.is_meta or not value.numel():
        return f"tensor{tuple(value.shape)}"
    learned = " (learned)" if value.requires_grad else ""
    if value.numel() == 1:
        return f"{value.item():g}{learned}"
    least, largest = (part.item() for part in value.detach().aminmax())
    return f"{least:g} to {largest:g} in {tuple(value.shape)}{learned}"
