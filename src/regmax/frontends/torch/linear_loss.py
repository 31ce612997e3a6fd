"""A linear layer and its Fenchel-Young loss, from hidden states to losses, without storing the scores whole.

The scores of a block of rows are computed into one buffer and mapped a few rows at a time. The gradients are

    d loss / d hidden = (y - q) weight,    d loss / d weight = (y - q)^T hidden.

If few weights are nonzero, they are weighted sums of the rows that these select; otherwise they are matrix products.
Those of a sum of losses are computed in the forward pass, while the scores are in memory: in the backward pass they
differ only by a factor. For losses that are not summed the forward pass stores the nonzero weights, and the backward
pass computes the scores of dense rows again.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from regmax.frontends.torch.linear_rows import BlockResult, Entries, Mapping
from regmax.frontends.torch.losses import fenchel_young
from regmax.frontends.torch.modes import is_plain

_Take = Callable[[int, BlockResult, Tensor], None]
_MOST_ROWS = 256  # of a block: the matrix product is as fast as for all rows
_FEWEST_ROWS = 64
_SHARE = 8  # a block has at most this fraction of the rows, between the two limits above


class Inputs(NamedTuple):
    """The tensors of a call; hidden (n, features), weight (classes, features), bias (classes,) or None."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None

    def scores(self, start: int, stop: int, buffer: Tensor) -> Tensor:
        """The scores of some rows, in the buffer."""
        x, hidden = buffer[: stop - start], self.hidden[start:stop]
        if hidden.dtype != x.dtype:
            x.copy_(functional.linear(hidden, self.weight))
        else:
            torch.mm(hidden, self.weight.t(), out=x)
        return x if self.bias is None else x.add_(self.bias)

    def buffer(self, rows: int) -> Tensor:
        """Memory for the scores of a block."""
        return self.hidden.new_empty(rows, len(self.weight), dtype=self.work_dtype)

    @property
    def work_dtype(self) -> torch.dtype:
        """Of scores, weights and sums: half precision is converted to float32."""
        return torch.float64 if self.hidden.dtype == torch.float64 else torch.float32


class Gradients:
    """Sums of (y - q) weight and (y - q)^T hidden, for the inputs that need them."""

    def __init__(self, inputs: Inputs, wanted: tuple[bool, ...]) -> None:
        self.inputs = inputs
        work = inputs.work_dtype
        self.hidden, self.weight, self.bias = (
            tensor.new_zeros(tensor.shape, dtype=work) if tensor is not None and needed else None
            for tensor, needed in zip(inputs, wanted, strict=True)
        )

    def typed(self, factor: Tensor | None = None) -> tuple[Tensor | None, ...]:
        """The sums, times a number, in the types of the inputs."""
        parts = (self.hidden, self.weight, self.bias)
        if factor is not None:
            for part in parts:
                if part is not None:
                    part.mul_(factor)
        return tuple(None if part is None else part.to(self.inputs.hidden.dtype) for part in parts)

    def add_block(self, start: int, part: BlockResult, x: Tensor, factors: Tensor | None = None) -> None:
        """Add a block of rows, times one factor per row; `x` contains y - q of its dense rows."""
        for first, last in part.dense:
            difference = x[first:last]
            if factors is not None:
                difference *= factors[start + first : start + last, None]
            self.add_dense(start + first, difference)
        self.add_sparse(part.entries.shifted(start), factors)

    def add_dense(self, start: int, difference: Tensor) -> None:
        """Add the rows from `start` on, given y - q."""
        stop = start + len(difference)
        if self.hidden is not None:
            weight = self.inputs.weight
            self.hidden[start:stop] = difference.to(weight.dtype) @ weight
        if self.weight is not None:
            self.weight.addmm_(difference.t(), self.inputs.hidden[start:stop].to(difference.dtype))
        if self.bias is not None:
            self.bias += difference.sum(0)

    def add_sparse(self, entries: Entries, factors: Tensor | None) -> None:
        """Add rows given by the nonzero entries of y - q, times one factor per row."""
        if not len(entries.values):
            return
        scaled = entries
        if factors is not None:
            scaled = entries._replace(values=entries.values * factors[entries.rows])
        if self.hidden is not None:
            scaled.add_products(self.hidden, self.inputs.weight)
        if self.weight is not None:
            scaled.transposed().add_products(self.weight, self.inputs.hidden)
        if self.bias is not None:
            self.bias.index_add_(0, scaled.columns, scaled.values)


class Stored:
    """What the backward pass needs if the factors of the losses are not known before."""

    def __init__(self) -> None:
        self.entries: list[Entries] = []
        self.dense: list[tuple[int, int]] = []

    def add_block(self, start: int, part: BlockResult, x: Tensor) -> None:
        """Keep the nonzero entries of y - q, and the ranges of dense rows."""
        self.entries.append(part.entries.shifted(start))
        self.dense.extend((start + first, start + last) for first, last in part.dense)


def _blocks(
    mapping: Mapping, inputs: Inputs, target: Tensor, strengths: tuple[bool, ...], take: _Take | None
) -> tuple[Tensor, Tensor]:
    """The losses of all rows and their derivatives in the strengths; each block's result goes to `take`."""
    n = len(inputs.hidden)
    size = _block_size(n)
    buffer = inputs.buffer(size)
    losses, partials = buffer.new_empty(n), buffer.new_zeros(2, n)
    for start in range(0, n, size):
        stop = min(start + size, n)
        x = inputs.scores(start, stop, buffer)
        part = mapping.block(x, target[start:stop], strengths)
        losses[start:stop], partials[:, start:stop] = part.losses, part.partials
        if take is not None:
            take(start, part, x)
    return losses, partials


def _block_size(rows: int) -> int:
    return max(1, min(rows, max(_FEWEST_ROWS, min(_MOST_ROWS, rows // _SHARE))))


class LinearFenchelYoung(Function):
    """The losses of all rows, or their sum; gamma and theta are numbers, or tensors of one number."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        gamma: Any,
        theta: Any,
        target: Tensor,
        mapping: Mapping,
        summed: bool,
    ) -> Tensor:
        inputs, wanted = Inputs(hidden, weight, bias), ctx.needs_input_grad
        ctx.gradients, ctx.dense, stored = None, [], Stored()
        take: _Take | None = None
        if any(wanted[:3]):
            ctx.gradients = Gradients(inputs, wanted[:3]) if summed else None
            take = ctx.gradients.add_block if summed else stored.add_block
        losses, partials = _blocks(mapping, inputs, target, wanted[3:5], take)
        if any(wanted[:5]):
            strengths = [value if isinstance(value, Tensor) else None for value in (gamma, theta)]
            entries = Entries.joined(stored.entries, losses)
            ctx.save_for_backward(hidden, weight, bias, target, *strengths, partials, *entries)
            ctx.mapping, ctx.summed, ctx.dense = mapping, summed, stored.dense
        return losses.sum() if summed else losses

    @staticmethod
    def backward(ctx: Any, loss_grad: Tensor) -> Any:
        hidden, weight, bias, target, gamma, theta, partials, *entries = ctx.saved_tensors
        wanted, inputs, mapping = ctx.needs_input_grad, Inputs(hidden, weight, bias), ctx.mapping
        if torch.is_grad_enabled():
            return (*_again(ctx, inputs, gamma, theta, target, loss_grad), None, None, None)
        factors = loss_grad.expand(len(hidden)).to(partials.dtype)
        own: tuple[Tensor | None, ...] = (None, None, None)
        if any(wanted[:3]) and ctx.summed:
            own = _early(ctx, loss_grad) or _once_more(ctx, inputs, target, factors)
        elif any(wanted[:3]):
            found = Gradients(inputs, wanted[:3])
            found.add_sparse(Entries(*entries), factors)
            _add_dense_rows(found, mapping, ctx.dense, target, factors)
            own = found.typed()
        strengths = [
            (factors * partial).sum().to(strength.dtype).reshape(strength.shape) if needed else None
            for strength, partial, needed in zip((gamma, theta), partials, wanted[3:5], strict=True)
        ]
        return *own, *strengths, None, None, None


def _early(ctx: Any, loss_grad: Tensor) -> tuple[Tensor | None, ...] | None:
    """The gradients of the forward pass, times that of the sum; None if they have been used.

    They are handed over, not copied, so that they become the parameters' gradients without more memory.
    """
    found: Gradients | None = ctx.gradients
    ctx.gradients = None
    return None if found is None else found.typed(loss_grad)


def _once_more(ctx: Any, inputs: Inputs, target: Tensor, factors: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients of a second backward pass, computed again."""
    found = Gradients(inputs, ctx.needs_input_grad[:3])
    _blocks(ctx.mapping, inputs, target, (False, False), partial(found.add_block, factors=factors))
    return found.typed()


def _add_dense_rows(
    found: Gradients, mapping: Mapping, dense: list[tuple[int, int]], target: Tensor, factors: Tensor
) -> None:
    """Add dense rows, whose scores are computed again."""
    buffer = found.inputs.buffer(max((stop - start for start, stop in dense), default=0))
    for start, stop in dense:
        x = found.inputs.scores(start, stop, buffer)
        difference = mapping.difference(x, target[start:stop])
        found.add_dense(start, difference.mul_(factors[start:stop, None]))


def _again(
    ctx: Any, inputs: Inputs, gamma: Tensor | None, theta: Tensor | None, target: Tensor, loss_grad: Tensor
) -> list[Tensor | None]:
    """Gradients that can be differentiated again, from scores that are stored whole."""
    loss = whole(ctx.mapping.at(gamma, theta), inputs, target)
    loss = loss.sum() if ctx.summed else loss
    parts = [*inputs, gamma, theta]
    used: list[Any] = [part for part, needed in zip(parts, ctx.needs_input_grad, strict=False) if needed]
    found = iter(torch.autograd.grad(loss, used, loss_grad, create_graph=True, allow_unused=True))
    return [next(found) if needed else None for needed in ctx.needs_input_grad[:5]]


def whole(mapping: Mapping, inputs: Inputs, target: Tensor) -> Tensor:
    """One loss per row, from scores that are stored whole."""
    x = functional.linear(*inputs)
    x = x if x.dtype == torch.float64 else x.float()
    return fenchel_young(mapping.problem(x), target[:, None])[:, 0]


def linear_fenchel_young(
    mapping: Mapping, inputs: Inputs, target: Tensor, ignore_index: int, reduction: str
) -> Tensor:
    """The reduced loss of hidden states (n, features) and class indices (n,)."""
    counted = target != ignore_index
    if not (is_plain(inputs.hidden) and is_plain(inputs.weight)):
        losses = whole(mapping, inputs, torch.where(counted, target, 0))
        return _reduced(torch.where(counted, losses, 0.0), counted, reduction)
    every = bool(counted.all())
    hidden, classes = (inputs.hidden, target) if every else (inputs.hidden[counted], target[counted])
    arguments = (*inputs._replace(hidden=hidden), mapping.gamma, mapping.theta, classes, mapping)
    if reduction != "none":
        total: Tensor = LinearFenchelYoung.apply(*arguments, True)
        return total / len(hidden) if reduction == "mean" else total
    losses = LinearFenchelYoung.apply(*arguments, False)
    return losses if every else losses.new_zeros(target.shape).masked_scatter(counted, losses)


def _reduced(losses: Tensor, counted: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / counted.sum()
