"""Annealing gamma from dense to sparse weights in the first part of training.

At uniform weights 1/d the Jacobian of softmax is (I - 11'/d) / (gamma d), that of sparsemax (I - 11'/d) / gamma: d
times larger. Early in training, while scores are not informative, sparse attention therefore collapses onto a few
positions, and a weight that is exactly zero passes no gradient. A larger gamma at first keeps more positions in the
support.

The penalty of fusedmax and oscarmax is gamma lam: with lam unchanged, a gamma of 4 fuses neighbours whose scores differ
by four times as much, and a row that is one segment has no gradient at all. So lam is reduced while gamma is large.
"""

from typing import Any, NamedTuple

import torch

from regmax.groups import groups
from regmax.mappings import row_of
from regmax.nn.mappings import _Mapping
from regmax.nn.recording import record_attention
from regmax.nn.schedule import LinearSchedule
from regmax.resolver import resolve


class AnnealingReport(NamedTuple):
    """How many rows of weights pass no gradient to their scores: those with a single segment, cluster or weight.

    Example:
        >>> AnnealingReport(4.0, {"attend": (2, 8)}).share
        0.25
    """

    gamma: float
    layers: dict[str, tuple[int, int]]  # by module name: rows without gradient, and rows

    @property
    def share(self) -> float:
        """The share of rows without gradient."""
        rows = sum(each for _, each in self.layers.values())
        return sum(dead for dead, _ in self.layers.values()) / rows if rows else 0.0


class AnnealGamma(LinearSchedule):
    """Sets gamma of every mapping module in a model, step by step, from `start` to `end`.

    gamma is `start` for the first `delay` steps, falls linearly over the next `steps`, and stays at `end`. It is in the
    model's state dict from the first step on: a checkpoint gives the same weights in a model without an annealer.

    Args:
        model: any module; all `regmax.nn` mappings in it are annealed, including those of attention given by name.
        start: the initial gamma, larger than `end`: dense weights.
        end: the final gamma.
        steps: the number of calls of `step` from `start` to `end`.
        delay: the number of calls before gamma changes.
        constant_penalty: whether the penalty gamma lam of fusedmax and oscarmax is constant at its final value: lam is
            multiplied by end / gamma. With False lam is constant, and at first many rows may be a single segment or
            cluster and pass no gradient: see `report`.

    Example:
        >>> import regmax
        >>> mapping = regmax.nn.Fusedmax(lam=0.1)
        >>> schedule = regmax.nn.AnnealGamma(mapping, start=4.0, end=1.0, steps=3)
        >>> gammas = [schedule.gamma]
        >>> mapping.gamma, mapping.lam
        (4.0, 0.025)
        >>> for _ in range(4):  # after each optimizer.step()
        ...     schedule.step()
        ...     gammas.append(schedule.gamma)
        >>> gammas
        [4.0, 3.0, 2.0, 1.0, 1.0]
        >>> mapping
        Fusedmax(
          dim=-1
          (strengths): Strengths(lam=0.1, gamma=1)
        )
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        start: float = 4.0,
        end: float = 1.0,
        steps: int,
        delay: int = 0,
        constant_penalty: bool = True,
    ) -> None:
        for name, gamma in (("start", start), ("end", end)):
            if not gamma > 0:
                raise ValueError(f"`AnnealGamma(..., {name}=...)` must be positive. Got {gamma}.")
        super().__init__(start, end, steps=steps, delay=delay)
        self._mappings = [
            module
            for module in model.modules()
            if isinstance(module, _Mapping) and "gamma" in module.strengths.fixed
        ]
        if not self._mappings:
            raise ValueError(
                "`AnnealGamma(model)` found no mapping of `regmax.nn` with a fixed gamma. A gamma that is learned or "
                "a tensor is not annealed."
            )
        self._model = model
        self._constant_penalty = constant_penalty
        self._set()

    @property
    def gamma(self) -> float:
        """The current gamma."""
        return self._value

    def report(self, *inputs: Any, **options: Any) -> AnnealingReport:
        """Run the model once, without gradients, and count the rows of attention that pass no gradient to their scores.

        Args:
            inputs: arguments of the model.
            options: likewise, by name.

        Returns:
            gamma, the share, and the counts for each attention layer.
        """
        # Mappings that the model calls itself; those of attention layers are recorded below.
        report = AnnealingReport(self.gamma, {})
        names = {module: name for name, module in self._model.named_modules()}

        def count(module: torch.nn.Module, _: Any, y: torch.Tensor) -> None:
            _add(report, names[module], y, module)

        hooks = [mapping.register_forward_hook(count) for mapping in self._mappings]
        attentions = {name: module for module, name in names.items() if hasattr(module, "mapping")}
        try:
            with torch.no_grad():
                if not attentions:
                    self._model(*inputs, **options)
                    return report
                with record_attention(self._model, modules=tuple(attentions)) as record:
                    self._model(*inputs, **options)
        finally:
            for hook in hooks:
                hook.remove()
        for name, calls in record.items():
            for weights in calls:
                _add(report, name, weights.to_dense(), attentions[name].mapping)
        return report

    def _set(self) -> None:
        gamma = self.gamma
        factor = self._end / gamma if self._constant_penalty else 1.0
        for mapping in self._mappings:
            mapping.strengths.anneal(gamma, factor)


def _add(report: AnnealingReport, name: str, y: torch.Tensor, mapping: Any) -> None:
    dead, rows = report.layers.get(name, (0, 0))
    found = rows_without_gradient(y, mapping)
    report.layers[name] = (dead + int(found.sum()), rows + found.numel())


def rows_without_gradient(y: torch.Tensor, mapping: Any, dim: int = -1) -> torch.Tensor:
    """Which rows of a mapping's weights pass no gradient to their scores: J = 0, because the support is one group.

    A group is a segment for fusedmax, a cluster for oscarmax, and a single weight for the others. Rows without any
    weight, which are masked, count as well.

    Example:
        >>> import torch
        >>> y = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.25, 0.25]])
        >>> rows_without_gradient(y, "fusedmax"), rows_without_gradient(y, "sparsemax")
        (tensor([ True, False]), tensor([False, False]))
    """
    omega = resolve(mapping).omega
    row, lam = row_of(omega), getattr(omega, "theta", None)
    if row is None or not (row.segments or row.clusters) or (not isinstance(lam, torch.Tensor) and lam == 0):
        return (y != 0).sum(dim) <= 1
    return groups(y, dim, contiguous=row.segments).ids.amax(dim) <= 1
