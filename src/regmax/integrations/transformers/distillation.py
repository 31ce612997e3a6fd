"""A short training of a sparsified model to give the hidden states and outputs of the original.

`follow` is the loop, which tuning of the strengths shares.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

Batch = Mapping[str, Any]
_STATES = ("hidden_states", "encoder_hidden_states", "decoder_hidden_states")
_WARM_UP = 0.1  # the share of steps in which the learning rate grows
_LARGEST_NORM = 1.0  # of the gradient


@dataclass(frozen=True)
class Plan:
    """Batches on which a model is brought closer to the original, step by step."""

    batches: Iterable[Batch]
    steps: int = 200
    learning_rate: float = 1e-4
    output: Callable[[Any, Batch], Tensor] | None = None
    loss: Callable[[Any, Any, Batch], Tensor] | None = None
    with_states: ClassVar[bool] = True  # whether hidden states count beside `output` or `loss`

    def __post_init__(self) -> None:
        name = type(self).__name__
        if self.steps < 1:
            raise ValueError(f"`{name}(..., steps=...)` must be at least 1. Got {self.steps}.")
        if not self.learning_rate > 0:
            raise ValueError(f"`{name}(..., learning_rate=...)` must be positive. Got {self.learning_rate}.")
        if self.output is not None and self.loss is not None:
            raise ValueError(
                f"`{name}(..., output=..., loss=...)`: `loss` replaces the error of `output`. Got both: pass one."
            )


@dataclass(frozen=True)
class Distillation(Plan):
    """How `sparsify_attention(..., distill=...)` trains the weights of the model against the original.

    The loss is the relative squared error of the hidden states of every layer, plus `loss` or the error of `output`
    if one is given, else the divergence of the logits if the model has some.

    Args:
        batches: keyword arguments of the model, iterated again if there are fewer than `steps`. They should be all
            kinds of inputs that the model will see, e.g. queries as well as documents.
        steps: the number of batches.
        learning_rate: AdamW's, which grows in the first tenth of the steps and then falls to zero.
        output: from the model's outputs and the batch to the tensor that matters, e.g. a pooled embedding.
        loss: from the model's outputs, the original's and the batch to a number, instead of the squared error of
            `output`, e.g. how much a search result's lead over the others has shrunk.

    Example:
        >>> Distillation([{"input_ids": torch.tensor([[1, 2]])}], steps=100).steps
        100
    """


def train(
    student: Any, teacher: Any, plan: Distillation, advance: Callable[[str], None]
) -> tuple[float, ...]:
    """Train the student in place, without dropout; the loss of every step."""
    parameters = [p for p in student.parameters() if p.requires_grad]
    if not parameters:
        raise ValueError("`sparsify_attention(..., distill=...)` needs parameters that require gradients.")
    optimizer = torch.optim.AdamW(parameters, lr=plan.learning_rate)

    def descend(loss: Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, _LARGEST_NORM)
        optimizer.step()

    losses = follow(student, teacher, plan, optimizer, descend, advance, "distill")
    optimizer.zero_grad()
    return losses


def follow(
    student: Any,
    teacher: Any,
    plan: Plan,
    optimizer: torch.optim.Optimizer,
    descend: Callable[[Tensor], None],
    advance: Callable[[str], None],
    argument: str,
) -> tuple[float, ...]:
    """Call `descend` with the loss of every batch, at the learning rate of its step; returns the losses."""
    losses: list[float] = []
    student.eval()
    with torch.enable_grad():
        for step, batch in zip(range(plan.steps), endless(plan.batches), strict=False):
            for group in optimizer.param_groups:
                group["lr"] = plan.learning_rate * _rate(step, plan.steps)
            loss = _loss(student, teacher, batch, plan)
            if not bool(loss.isfinite()):
                raise FloatingPointError(
                    f"`sparsify_attention(..., {argument}=...)`: the loss is not finite at step {step + 1}. "
                    f"Got learning_rate={plan.learning_rate:g}: try a smaller one."
                )
            descend(loss)
            losses.append(float(loss.detach()))
            advance(f"loss {losses[-1]:.4f}")
    return tuple(losses)


def endless(batches: Iterable[Batch]) -> Iterator[Batch]:
    """The batches again and again."""
    while True:
        empty = True
        for batch in batches:
            empty = False
            yield batch
        if empty:
            raise ValueError(
                "`Distillation(batches)` ran out of batches. Pass a list or a loader that can be iterated again."
            )


def relative_error(found: Tensor, wanted: Tensor, weight: Tensor | None = None) -> Tensor:
    """|found - wanted|^2 / |wanted|^2, over the positions with weight (batch, length) if the shapes fit."""
    found, wanted = found.float(), wanted.float()
    error, norm = (found - wanted).square().sum(-1), wanted.square().sum(-1)
    if weight is not None and weight.shape == error.shape:
        error, norm = error * weight, norm * weight
    return error.sum() / norm.sum().clamp_min(1e-12)


def position_weight(name: str, batch: Batch) -> Tensor | None:
    """The mask of the positions of a hidden state or output."""
    decoder = name.startswith("decoder") or "decoder_input_ids" in batch or "labels" in batch
    key = "decoder_attention_mask" if decoder and not name.startswith("encoder") else "attention_mask"
    found = batch.get(key)
    return found if isinstance(found, Tensor) and found.ndim == 2 else None


def _rate(step: int, steps: int) -> float:
    return min(1.0, (step + 1) / max(1.0, _WARM_UP * steps)) * (1 - step / steps)


def _loss(student: Any, teacher: Any, batch: Batch, plan: Plan) -> Tensor:
    states = plan.with_states or (plan.output is None and plan.loss is None)
    with torch.no_grad():
        wanted = teacher(**batch, output_hidden_states=states)
    found = student(**batch, output_hidden_states=states)
    errors = [
        relative_error(one, other, position_weight(name, batch))
        for name in _STATES
        if states
        for one, other in zip((found.get(name) or ())[1:], (wanted.get(name) or ())[1:], strict=True)
    ]
    loss = torch.stack(errors).mean() if errors else torch.zeros(())
    if plan.loss is not None:
        return loss + plan.loss(found, wanted, batch)
    if plan.output is not None:
        return loss + relative_error(plan.output(found, batch), plan.output(wanted, batch))
    if "logits" in found:
        return loss + _divergence(found["logits"], wanted["logits"], position_weight("logits", batch))
    return loss


def _divergence(found: Tensor, wanted: Tensor, weight: Tensor | None) -> Tensor:
    """The mean Kullback-Leibler divergence of two sets of logits."""
    each = functional.kl_div(
        found.float().log_softmax(-1), wanted.float().log_softmax(-1), reduction="none", log_target=True
    ).sum(-1)
    if weight is None or weight.shape != each.shape:
        return each.mean()
    return (each * weight).sum() / weight.sum().clamp_min(1)
