"""Isotonic regression and total variation as loops whose graph does not depend on the length: for ONNX.

Both start from one group per row and split groups until none splits, all groups of all rows at once. A group that is
fused has the mean of its scores and of the forces of its neighbours. Total variation splits a group at its level set
{z > mean}, which maximises sum_{i in S} (x_i - mean) minus the edges that S cuts; isotonic regression splits it at the
point of the cumulative sums that is highest above the chord. The number of rounds is that of nested level sets, about
log2(d). `pooling` is faster, but its graph contains log2(d) rounds that differ in shape.

The operations are those that ONNX has: no running maxima. Tensors that a loop reads have full size, because torch
forgets that a dimension is 1.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.functional import pad


def total_variation(x: Tensor, edges: Tensor) -> Tensor:
    """`pooling.total_variation`: argmin_z 1/2 |z - x|^2 + sum_i edges_i |z_i+1 - z_i|; `edges` has d - 1 columns."""
    edges = pad(edges, (1, 0))  # entry i is the edge before position i
    tolerance = _ROUNDING * torch.finfo(x.dtype).eps

    def split(starts: Tensor, forces: Tensor, found: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        free = torch.where(starts, 0, edges)
        w = _centred(x + forces, starts)
        u = _clipped_sums(w, free)
        before = torch.where(starts, 0, _preceding(u))
        slack = free + tolerance * (free + before.abs())
        # The label of position i - 1 if it does not follow that of i; the last label of a group follows its sum.
        ends = _ends(starts)
        upper = (ends & (u > 0)) | (_following(before > slack) & ~ends)
        decided = ends | _following(before.abs() > slack)
        inside = _from_next(upper, decided)
        cut = (inside != _preceding(inside)) & ~starts
        pull = torch.where(cut, torch.where(inside, -edges, edges), 0)
        return starts | cut, forces + pull - torch.where(ends, 0, _following(pull)), cut.any()

    starts = _first_column(x) | (edges == 0)
    starts, forces, _ = _repeat(split, starts, torch.zeros_like(x))
    return _means(x + forces, starts)


def isotonic_decreasing(x: Tensor) -> Tensor:
    """`pooling.isotonic_decreasing`: the nearest sequence with z_1 >= z_2 >= ... >= z_d."""
    tolerance = _ROUNDING * torch.finfo(x.dtype).eps

    def split(starts: Tensor, found: Tensor) -> tuple[Tensor, Tensor]:
        w = _centred(x, starts)
        number = starts.to(torch.int64).cumsum(-1) - 1
        height = _group_sums(w, starts)  # of the cumulative sums above the chord
        noise = tolerance * _group_sums(w.abs(), starts)
        height = torch.where(_ends(starts) | (height <= noise), 0, height)
        highest = torch.zeros_like(x).scatter_reduce(-1, number, height, "amax").gather(-1, number)
        cut = _preceding((height == highest) & (highest > 0)) & ~starts
        return starts | cut, cut.any()

    starts, _ = _repeat(split, _first_column(x).expand_as(x).clone())
    return _means(x, starts)


_ROUNDING = 8.0  # units in the last place: a smaller gain is no reason to split


def _repeat(split: Callable[..., tuple[Tensor, ...]], *state: Tensor) -> tuple[Tensor, ...]:
    """Split until nothing is found; the last result of `split` tells whether something was."""
    found = torch.ones((), dtype=torch.bool, device=state[0].device)

    def more(*state: Tensor) -> Tensor:
        return state[-1].clone()

    return while_loop(more, split, (*state, found))


def _first_column(x: Tensor) -> Tensor:
    return torch.arange(x.shape[-1], device=x.device) == 0


def _preceding(x: Tensor) -> Tensor:
    """Entry i of the result is entry i - 1; the first is repeated."""
    return x.index_select(-1, (torch.arange(x.shape[-1], device=x.device) - 1).clamp(min=0))


def _following(x: Tensor) -> Tensor:
    """Entry i of the result is entry i + 1; the last is repeated."""
    d = x.shape[-1]
    return x.index_select(-1, (torch.arange(d, device=x.device) + 1).clamp(max=d - 1))


def _ends(starts: Tensor) -> Tensor:
    """Whether a group ends here."""
    d = starts.shape[-1]
    return _following(starts) | (torch.arange(d, device=starts.device) == d - 1)


def _means(x: Tensor, starts: Tensor) -> Tensor:
    """The mean of every group at each of its positions."""
    number = starts.to(torch.int64).cumsum(-1) - 1
    total = torch.zeros_like(x).scatter_add(-1, number, x)
    count = torch.zeros_like(x).scatter_add(-1, number, torch.ones_like(x))
    return (total / count.clamp(min=1)).gather(-1, number)


def _centred(x: Tensor, starts: Tensor) -> Tensor:
    """The scores less their group's mean; the second difference removes the first one's rounding error."""
    w = x - _means(x, starts)
    return w - _means(w, starts)


def _from_next(value: Tensor, decided: Tensor) -> Tensor:
    """Every position's value from the next decided position, itself included; the last position is decided."""
    counts = decided.to(torch.int64).cumsum(-1)
    rank = counts - decided.to(torch.int64)  # of the next decided position
    # Undecided positions write to a place after all others.
    place = torch.where(decided, rank, value.shape[-1])
    table = torch.zeros_like(pad(rank, (0, 1))).scatter(-1, place, value.to(torch.int64))
    return table.gather(-1, rank) > 0


def _group_sums(w: Tensor, starts: Tensor) -> Tensor:
    """Cumulative sums that begin anew in every group."""
    d = w.shape[-1]
    index = torch.arange(d, device=w.device)

    def step(total: Tensor, open_: Tensor, reach: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        source, valid = _source(index, reach, total)
        total = total + torch.where(open_ & valid, total.gather(-1, source), 0)
        return total, open_ & valid & open_.gather(-1, source), reach * 2

    reach = torch.ones((), dtype=torch.int64, device=w.device)
    return while_loop(lambda total, open_, reach: reach < d, step, (w, ~starts, reach))[0]


def _clipped_sums(w: Tensor, bounds: Tensor) -> Tensor:
    """u_i = w_i + clip(u_i-1, -bounds_i, bounds_i), by doubling.

    The step from i - reach to i is u -> clip(u + s, low, high), and such functions compose to such functions.
    """
    d = w.shape[-1]
    index = torch.arange(d, device=w.device)

    def step(s: Tensor, low: Tensor, high: Tensor, reach: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        source, valid = _source(index, reach, s)
        first = s.gather(-1, source), low.gather(-1, source), high.gather(-1, source)
        low_after = torch.minimum(torch.maximum(first[1] + s, low), high)
        high_after = torch.minimum(torch.maximum(first[2] + s, low), high)
        return (
            torch.where(valid, first[0] + s, s),
            torch.where(valid, low_after, low),
            torch.where(valid, high_after, high),
            reach * 2,
        )

    reach = torch.ones((), dtype=torch.int64, device=w.device)
    state = w, w - bounds, w + bounds, reach
    return while_loop(lambda s, low, high, reach: reach < d, step, state)[1]


def _source(index: Tensor, reach: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """The positions `reach` to the left, and whether they exist."""
    source = index - reach
    return source.clamp(min=0).expand(like.shape), source >= 0
