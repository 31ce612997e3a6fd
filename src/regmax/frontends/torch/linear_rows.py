"""The rows of a block of scores for `linear_loss`: weights, losses, and the nonzero weights if they are few."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from regmax.frontends.torch import ops, structure
from regmax.frontends.torch.losses import Problem, difference, loss_of
from regmax.frontends.torch.rows import Rows
from regmax.kernels import KERNELS, native
from regmax.regularizers import KernelRegularizer, Regularizer

# Rows are mapped in groups of about this many scores, whose weights stay in the cache.
_GROUP = 1 << 19
# Rows with more than this fraction of nonzero weights are dense: selecting rows of 512 numbers takes about as long as
# the matrix products at a fraction of 1/20, and memory for the selection grows with it.
_FEW = 1 / 64
# Rows of the result that are computed at a time, because they are computed aside and then added.
_CHUNK = 1 << 11


class Entries(NamedTuple):
    """The nonzero entries of a sparse matrix, ordered by rows."""

    rows: Tensor  # (nonzeros,), int64
    columns: Tensor
    values: Tensor

    @classmethod
    def joined(cls, parts: "list[Entries]", like: Tensor) -> "Entries":
        """The entries of all parts, one after another."""
        none = torch.empty(0, dtype=torch.int64, device=like.device)
        parts = [cls(none, none, like.new_empty(0)), *parts]
        return cls(*(torch.cat(part) for part in zip(*parts, strict=True)))

    def shifted(self, start: int) -> "Entries":
        """The same entries in rows that begin at `start`."""
        return self._replace(rows=self.rows + start)

    def transposed(self) -> "Entries":
        """The transposed matrix."""
        order = self.columns.argsort(stable=True)
        return Entries(self.columns[order], self.rows[order], self.values[order])

    def add_products(self, result: Tensor, table: Tensor) -> None:
        """Add the product of this matrix and `table` to `result`."""
        rows, counts = self.rows.unique_consecutive(return_counts=True)
        ends = counts.cumsum(0)
        for first in range(0, len(rows), _CHUNK):
            last = min(first + _CHUNK, len(rows)) - 1
            begin, end = int(ends[first] - counts[first]), int(ends[last])
            chosen, columns = rows[first : last + 1], self.columns[begin:end]
            offsets = ends[first : last + 1] - counts[first : last + 1] - begin
            values = self.values[begin:end]
            sums = functional.embedding_bag(
                columns, table, offsets, mode="sum", per_sample_weights=values.to(table.dtype)
            )
            result.index_add_(0, chosen, sums.to(result.dtype))


class BlockResult(NamedTuple):
    """A block of rows. The scores of its dense rows have been replaced by y - q."""

    losses: Tensor  # (n,)
    partials: Tensor  # (2, n): the derivatives in gamma and theta
    entries: Entries  # of y - q, for the sparse rows
    dense: list[tuple[int, int]]  # ranges of dense rows


class Mapping(NamedTuple):
    """The regularizer of a call; gamma and theta are numbers, or tensors of one number."""

    omega: Regularizer
    argmax_rows: Callable[[Rows], Tensor]
    gamma: Any
    theta: Any

    def at(self, gamma: Tensor | None, theta: Tensor | None) -> "Mapping":
        """The same mapping at the strengths that are given as tensors."""
        return self._replace(
            gamma=self.gamma if gamma is None else gamma, theta=self.theta if theta is None else theta
        )

    def problem(self, x: Tensor) -> Problem:
        """The loss of these scores."""
        rows = Rows(x, None, self.theta, self.gamma, x.ndim - 1, x.dtype)
        return Problem(self.omega, self.argmax_rows, rows)

    def difference(self, x: Tensor, target: Tensor) -> Tensor:
        """y - q for rows of scores, which it overwrites."""
        size = _group(x)
        for group, classes in zip(x.split(size), target.split(size), strict=True):
            y, _ = self._weights(group)
            group.copy_(difference(self.problem(group).rows, y, classes[:, None]))
        return x

    def block(self, x: Tensor, target: Tensor, strengths: tuple[bool, ...]) -> BlockResult:
        """Losses and gradients of rows of scores; `strengths` tells which derivatives are wanted."""
        losses, partials, found = x.new_empty(len(x)), x.new_zeros(2, len(x)), []
        dense: list[tuple[int, int]] = []
        size = _group(x)
        work = self._new_weights(x[:size])
        for start in range(0, len(x), size):
            stop = min(start + size, len(x))
            group, classes = x[start:stop], target[start:stop]
            y, support = self._weights(group, work)
            entries = _few(y, support)
            sparse = None if entries is None else self._sparse(group, classes, y, entries, strengths)
            if sparse is not None:
                losses[start:stop], partials[:, start:stop] = sparse[:2]
                found.append(sparse[2].shifted(start))
                continue
            losses[start:stop], partials[:, start:stop] = self._dense(group, classes, y, strengths)
            joins = bool(dense) and dense[-1][1] == start
            dense[-1:] = [(dense[-1][0], stop)] if joins else [*dense[-1:], (start, stop)]
        return BlockResult(losses, partials, Entries.joined(found, x), dense)

    def _weights(self, x: Tensor, work: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor | None]:
        """The weights of rows, and the bits of their support if the core provides them."""
        kernel = getattr(self.omega, "kernel", "")
        if work is None or not len(x):
            return self.argmax_rows(self.problem(x).rows), None
        y, bits = work[0][: len(x)], work[1][:, : len(x)]
        if len(x) < len(work[0]):
            bits = bits.contiguous()
        ops.argmax_into(x, y, bits, float(self.theta or 0.0), float(self.gamma), kernel)
        return y, bits[0] if len(bits) else None

    def _new_weights(self, x: Tensor) -> tuple[Tensor, Tensor] | None:
        """Memory for the core's weights of a group and their bits, which groups share."""
        if not (isinstance(self.omega, KernelRegularizer) and self.omega.kernel in native.CODES):
            return None
        if not (x.is_cpu and native.available()) or self.omega.steps:
            return None
        return torch.empty_like(x), x.new_empty(structure.bits_shape(x, self.omega.kernel), dtype=torch.int64)

    def _sparse(
        self, x: Tensor, target: Tensor, y: Tensor, entries: Entries, strengths: tuple[bool, ...]
    ) -> tuple[Tensor, Tensor, Entries] | None:
        """Losses, derivatives in the strengths, and y - q of sparse rows; None if they are not ordinary."""
        rows, columns, values = entries
        at_target = x.gather(-1, target[:, None])
        compact = isinstance(self.omega, KernelRegularizer) and KERNELS[self.omega.kernel].groups == "none"
        if compact:
            # Zeros do not change Omega, and the largest score has weight: the support is enough.
            x, y = (_compacted(entries, part, len(x)) for part in (x[rows, columns], values))
        sums = y.sum(-1)
        if not bool(((sums > 0.5) & (sums < 2)).all()):
            return None  # rows of NaN, or without any weight
        if compact:
            top = torch.where(y > 0, x, -torch.inf).amax(-1, keepdim=True)
            inner = ((x - top) * y).sum(-1, keepdim=True) - (at_target - top)
            losses, partials = self._with_entropy(inner, y, target, strengths)
        else:
            losses, partials = self._dense_losses(x, target, y, strengths)
        kept = at_target[:, 0] != -torch.inf
        every = torch.arange(len(target), device=x.device)
        minus = Entries(every[kept], target[kept], -torch.ones_like(sums)[kept])
        both = Entries(*(torch.cat(part) for part in zip(entries, minus, strict=True)))
        order = both.rows.argsort(stable=True)
        return losses, partials, Entries(*(part[order] for part in both))

    def _dense(
        self, x: Tensor, target: Tensor, y: Tensor, strengths: tuple[bool, ...]
    ) -> tuple[Tensor, Tensor]:
        """Losses and derivatives in the strengths of dense rows; their scores are replaced by y - q."""
        low, top = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
        if not bool((top - low).isfinite().all()):
            losses, partials = self._dense_losses(x, target, y, strengths)
            x.copy_(difference(self.problem(x).rows, y, target[:, None]))
            return losses, partials
        # No score is deleted: without masks, and in place, this takes few passes over the rows.
        x.sub_(top)
        inner = (x * y).sum(-1, keepdim=True) - x.gather(-1, target[:, None])
        losses, partials = self._with_entropy(inner, y, target, strengths)
        x.copy_(y).scatter_add_(-1, target[:, None], x.new_full((len(x), 1), -1.0))
        return losses, partials

    def _dense_losses(
        self, x: Tensor, target: Tensor, y: Tensor, strengths: tuple[bool, ...]
    ) -> tuple[Tensor, Tensor]:
        problem = self.problem(x)
        losses = loss_of(problem, problem.rows, y, target[:, None])[:, 0]
        if not any(strengths):
            return losses, y.new_zeros(2, len(y))
        return losses, self._with_entropy(torch.zeros_like(y[:, :1]), y, target, strengths)[1]

    def _with_entropy(
        self, inner: Tensor, y: Tensor, target: Tensor, strengths: tuple[bool, ...]
    ) -> tuple[Tensor, Tensor]:
        """inner + gamma (Omega(q) - Omega(y)), and its derivatives in gamma and theta, per row."""
        partials = y.new_zeros(2, len(y))
        theta = self.theta.detach() if isinstance(self.theta, Tensor) else self.theta
        gamma = self.gamma.detach() if isinstance(self.gamma, Tensor) else self.gamma
        problem = self.problem(y)
        with torch.set_grad_enabled(strengths[1]):
            if strengths[1]:
                theta = theta.to(y.dtype).expand(len(y), 1).clone().requires_grad_()
            entropy = problem.target_value(target[:, None], y, None, theta) - problem.value(y, None, theta)
            if strengths[1]:
                (slope,) = torch.autograd.grad(entropy.sum(), theta)
                partials[1] = gamma * slope[:, 0]
        entropy = entropy.detach()
        partials[0] = entropy[:, 0]
        return (inner + gamma * entropy)[:, 0].clamp(min=0), partials


def _group(x: Tensor) -> int:
    """The number of rows that are mapped at a time: at least four for every thread."""
    return max(_GROUP // max(x.shape[-1], 1), 4 * torch.get_num_threads())


def _few(y: Tensor, support: Tensor | None) -> Entries | None:
    """The nonzero weights of rows, or None if they are many."""
    most = int(_FEW * y.numel())
    if support is None:
        inside = y != 0
        if int(inside.sum()) > most:
            return None
        rows, columns = inside.nonzero(as_tuple=True)
    else:
        # Byte by byte, which is in order on the little-endian processors of the core.
        parts = support.view(torch.uint8)
        rows, places = parts.nonzero(as_tuple=True)
        if len(rows) > most:
            return None
        bits = (parts[rows, places][:, None] >> torch.arange(8, dtype=torch.uint8)) & 1
        nonzero, bit = bits.nonzero(as_tuple=True)
        if len(nonzero) > most:
            return None
        rows, columns = rows[nonzero], places[nonzero] * 8 + bit
    return Entries(rows, columns, y[rows, columns])


def _compacted(entries: Entries, values: Tensor, n: int) -> Tensor:
    """Values of the entries as n rows, each filled up with zeros."""
    counts = torch.bincount(entries.rows, minlength=n)
    starts = counts.cumsum(0) - counts
    places = torch.arange(len(values), device=values.device) - starts[entries.rows]
    width = int(counts.max()) if n else 0
    return values.new_zeros(n, max(width, 1)).index_put((entries.rows, places), values)
