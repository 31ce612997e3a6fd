"""Tune the gammas of all heads together, by gradient, at the same mean number of words; the weights stay as they are.

The choice from the grid takes every head for itself, with the inputs that its layer had with softmax. Errors of heads
add up or cancel, though, and a layer counts by what the layers above make of it. A few dozen steps on the error of the
whole model see both. The number of words has no gradient; the calibration gives it as a curve over log gamma for each
head, and on these curves every step keeps the mean.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from regmax.integrations.transformers.calibration import LayerSums
from regmax.integrations.transformers.distillation import Plan, follow
from regmax.integrations.transformers.heads import HeadMappings, HeadStrengths
from regmax.integrations.transformers.interface import ATTRIBUTE
from regmax.resolver import Resolved

_HALVINGS = 40


@dataclass(frozen=True)
class Tuning(Plan):
    """How `sparsify_attention(..., tune=...)` tunes the gammas of all heads; the weights stay as they are.

    The loss is `loss` or the relative squared error of `output` if one is given, else that of `Distillation`. The mean
    number of words stays that of the choice, as the calibration counts it.

    Args:
        batches: keyword arguments of the model, iterated again if there are fewer than `steps`.
        steps: the number of batches.
        learning_rate: Adam's, of the logarithms, which grows in the first tenth of the steps and then falls to zero.
        output: from the model's outputs and the batch to the tensor that matters, e.g. a pooled embedding.
        loss: from the model's outputs, the original's and the batch to a number, as in `Distillation`.

    Example:
        >>> Tuning([{"input_ids": torch.tensor([[1, 2]])}]).steps
        40
    """

    steps: int = 40
    learning_rate: float = 0.1
    with_states: ClassVar[bool] = False


class Curves(NamedTuple):
    """Words and errors of the sparse heads of a layer, (heads, gammas), over the logarithms of the grid's gammas."""

    logs: Tensor
    words: Tensor
    errors: Tensor

    def at(self, values: Tensor, log_gamma: Tensor) -> Tensor:
        """One of them at these gammas, interpolated linearly."""
        last = torch.searchsorted(self.logs, log_gamma.detach()).clamp(1, len(self.logs) - 1)
        start, end = self.logs[last - 1], self.logs[last]
        below, above = (values.gather(1, i[:, None])[:, 0] for i in (last - 1, last))
        return below + (log_gamma - start) / (end - start) * (above - below)


class _Tuned(HeadMappings):
    """The mappings of a layer while the gammas of its sparse heads are parameters."""

    def __init__(self, mapping: str, heads: Sequence[HeadStrengths | None], curves: Curves) -> None:
        super().__init__(mapping, heads)
        self.curves = curves
        gammas = [each["gamma"] for each in self.heads if each is not None]
        self.log_gamma = torch.nn.Parameter(torch.tensor(gammas, dtype=torch.float32).log())

    def resolved_heads(self) -> Resolved:
        return replace(super().resolved_heads(), gamma=self.log_gamma.exp().reshape(-1, 1, 1))

    def words(self, shift: float = 0.0) -> Tensor:
        curves = self.curves
        return curves.at(curves.words, (self.log_gamma + shift).clamp(curves.logs[0], curves.logs[-1]))

    @torch.no_grad()
    def move(self, shift: float) -> None:
        self.log_gamma.add_(shift).clamp_(self.curves.logs[0], self.curves.logs[-1])

    @torch.no_grad()
    def found(self) -> tuple[list[HeadStrengths | None], list[float]]:
        """The strengths and errors of all heads."""
        gammas = iter(self.log_gamma.exp().tolist())
        errors = iter(self.curves.at(self.curves.errors, self.log_gamma).tolist())
        strengths: list[HeadStrengths | None] = [
            None if each is None else {**each, "gamma": next(gammas)} for each in self.heads
        ]
        return strengths, [0.0 if each is None else next(errors) for each in strengths]


Found = dict[torch.nn.Module, tuple[list[HeadStrengths | None], list[float]]]


def tune(
    student: Any,
    teacher: Any,
    plan: Tuning,
    sums: Mapping[torch.nn.Module, LayerSums],
    points: tuple[dict[str, float], ...],
    advance: Callable[[str], None],
) -> tuple[Found, tuple[float, ...]]:
    """Strengths and errors of every head of the layers in `sums`, which get them too; the loss of every step."""
    tuned: dict[torch.nn.Module, _Tuned] = {}
    for module, each in sums.items():
        own: Any = module._modules[ATTRIBUTE]
        device = own.sparse.device
        tuned[module] = _Tuned(own.row.name, own.heads, _curves(each, points, own.heads, device)).to(device)
        module.add_module(ATTRIBUTE, tuned[module])
    layers = [each for each in tuned.values() if len(each.sparse)]
    losses = _descend(student, teacher, plan, layers, advance) if layers else ()
    found = {module: each.found() for module, each in tuned.items()}
    for module, (strengths, _) in found.items():
        device = tuned[module].sparse.device
        module.add_module(ATTRIBUTE, HeadMappings(tuned[module].row.name, strengths).to(device))
    return found, losses


def _curves(
    sums: LayerSums,
    points: Sequence[HeadStrengths],
    heads: Sequence[HeadStrengths | None],
    device: torch.device,
) -> Curves:
    """The points of the grid that differ from each sparse head's only in gamma."""
    gammas = sorted({point["gamma"] for point in points})
    if len(gammas) < 2:
        raise ValueError(
            "`sparsify_attention(..., tune=...)` tunes gamma between the values of the grid, at least two. "
            f"Got {gammas[0]:g} only."
        )
    numbers = {tuple(sorted(point.items())): i for i, point in enumerate(points)}
    sparse = [(head, each) for head, each in enumerate(heads) if each is not None]

    def values(table: Tensor) -> Tensor:
        rows = [
            [float(table[numbers[tuple(sorted({**each, "gamma": gamma}.items()))], head]) for gamma in gammas]
            for head, each in sparse
        ]
        return torch.tensor(rows, dtype=torch.float32, device=device).reshape(len(sparse), len(gammas))

    logs = torch.tensor(gammas, dtype=torch.float32, device=device).log()
    return Curves(logs, values(sums.supports()), values(sums.errors()))


def _descend(
    student: Any, teacher: Any, plan: Tuning, layers: list[_Tuned], advance: Callable[[str], None]
) -> tuple[float, ...]:
    gammas = [each.log_gamma for each in layers]
    optimizer = torch.optim.Adam(gammas, lr=plan.learning_rate)

    def words(shift: float = 0.0) -> Tensor:
        return torch.cat([each.words(shift) for each in layers]).sum()

    allowed = float(words().detach())

    def descend(loss: Tensor) -> None:
        """A step along the gradient without its part along that of the words, and back to their number."""
        slopes, falls = torch.autograd.grad(words(), gammas), torch.autograd.grad(loss, gammas)
        across = _dot(slopes, falls) / _dot(slopes, slopes).clamp_min(torch.finfo(torch.float32).tiny)
        for gamma, slope, fall in zip(gammas, slopes, falls, strict=True):
            gamma.grad = fall - across * slope
        optimizer.step()
        shift = _shift(words, allowed, float(layers[0].curves.logs[-1] - layers[0].curves.logs[0]))
        for each in layers:
            each.move(shift)

    return follow(student, teacher, plan, optimizer, descend, advance, "tune")


@torch.no_grad()
def _shift(words: Callable[[float], Tensor], allowed: float, width: float) -> float:
    """The shift of all log gammas with which there are at most `allowed` words."""
    low, high = -width, width
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if float(words(middle)) <= allowed else (low, middle)
    return low


def _dot(one: Sequence[Tensor], other: Sequence[Tensor]) -> Tensor:
    return torch.stack([(a * b).sum() for a, b in zip(one, other, strict=True)]).sum()
