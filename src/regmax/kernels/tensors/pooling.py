"""Isotonic regression and total variation for all rows at once, exactly, in a fixed number of operations.

Both problems fuse neighbours along a chain, and both are solved by joining solved blocks of 1, 2, 4, ... neighbours.
Cut the chain into two blocks. Each block's solution depends only on one number, the value v at the edge between them:
position i follows v between two limits,

    z_i(v) = clip(v, low_i, high_i),

because the backward step of the dynamic programme is a clip, and clips compose to clips. The limits are the block's
solutions with the edge pulling at full force, downward and upward. The forces of the edge on the two blocks cancel, so
the sum of z is known: v is the root of sum_i clip(v, low_i, high_i) = total, an increasing, piecewise linear function.
Sorting its breakpoints finds the interval of the root, and the group around the edge gets the single value v, so fused
values are bitwise equal. Neighbours with equal scores always fuse; if rounding has separated them, they get one value
at the end.

Both take log2(d) rounds with one sort each: O(d log^2 d) work per row, for any scores. The graph of these rounds
depends on d: ONNX receives the loops of `splitting`, which work for every length.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from regmax.kernels.tensors import splitting
from regmax.kernels.tensors.chains import equal_neighbours, equalized


def isotonic_decreasing(x: Tensor) -> Tensor:
    """Return the nearest decreasing sequence to every row: argmin |z - x|^2 with z_1 >= z_2 >= ... >= z_d.

    Here an edge pushes its two ends together only if they increase: a left block follows v upward from its own
    solution, a right block downward.
    """
    if torch.onnx.is_in_onnx_export():
        return equalized(splitting.isotonic_decreasing(x), equal_neighbours(x))
    d = x.shape[-1]
    # Padding with the row's minimum is never pooled with the row.
    least = x.amin(-1, keepdim=True).expand(*x.shape[:-1], _next_power_of_two(d) - d)
    scores = z = torch.cat([x, least], -1)
    size = 1
    while size < d:
        size *= 2
        left, right = _blocks(z, size).chunk(2, -1)
        v = _isotonic_level(_blocks(scores, size), left, right)
        z = torch.cat([torch.maximum(left, v), torch.minimum(right, v)], -1).flatten(-2)
    return equalized(z[..., :d], equal_neighbours(x))


def _isotonic_level(scores: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """The level v at which sum max(left, v) + sum min(right, v) = sum left + sum right."""
    last, first = left[..., -1:], right[..., :1]
    both = torch.cat([left, right], -1)
    lowest = torch.minimum(last, right[..., -1:])
    start = (lowest - right).sum(-1, keepdim=True)
    v = _root(both, slope=left.shape[-1], start=start)
    for _ in range(_REFINEMENTS):
        v = _mean_where(torch.cat([left < v, right > v], -1), scores, otherwise=v)
    return torch.where(last < first, v, last)  # blocks that are in order do not change, to the last bit


def total_variation(x: Tensor, edges: Tensor) -> Tensor:
    """Return argmin_z 1/2 |z - x|^2 + sum_i edges_i |z_i+1 - z_i| for every row; `edges` has d - 1 columns.

    A block keeps four solutions z[a, b]: its left neighbour pulls it downward (a = 0) or upward (a = 1) with the
    full force of the edge between them, and its right neighbour likewise (b).
    """
    if torch.onnx.is_in_onnx_export():
        joined = equal_neighbours(x) & pad(edges > 0, (1, 0))
        return equalized(splitting.total_variation(x, edges), joined)
    d = x.shape[-1]
    padding = _next_power_of_two(d) - d
    scores = pad(x, (0, padding))
    edges = pad(edges, (1, 1 + padding))  # no force at the ends of the row and in the padding
    pull_left, pull_right = _both_ways(edges[..., :-1], edges[..., 1:])
    z = scores + (pull_left + pull_right)  # forces first: if they cancel, z = x exactly
    size = 1
    while size < d:
        size *= 2
        left, right = _blocks(z, size).chunk(2, -1)
        low = torch.cat([left[:, :1].expand_as(left), right[:1].expand_as(right)], -1)
        high = torch.cat([left[:, 1:].expand_as(left), right[1:].expand_as(right)], -1)
        v = _chain_level(_blocks(scores, size), edges, low, high)
        z = _clip(v, low, high).flatten(-2)
    return equalized(z[0, 0, ..., :d], equal_neighbours(x) & pad(edges[..., 1:d] > 0, (1, 0)))


def _chain_level(scores: Tensor, edges: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The level v at which sum clip(v, low, high) is the sum of the scores and of the outer neighbours' pull.

    In `low` both ends of the middle edge are pulled downward by its force: its sum is less by twice the force.
    """
    size = scores.shape[-1]
    inner = _blocks(edges[..., :-1], size)[..., 1:]
    middle = inner[..., size // 2 - 1 : size // 2]
    v = _root(torch.cat([low, high], -1), slope=0, start=-2 * middle)
    pull_left, pull_right = _both_ways(edges[..., :-1:size, None], edges[..., size::size, None])
    for _ in range(_REFINEMENTS):
        z = _clip(v, low, high)
        # The force of every edge on its right end, opposite on its left end; none inside the group around v.
        inside = inner * (z[..., :-1] - z[..., 1:]).sign()
        force = torch.cat([pull_left.expand_as(v), inside, -pull_right.expand_as(v)], -1)
        v = _mean_where(z == v, scores - force.diff(dim=-1), otherwise=v)
    return v


# The root comes from sums over whole blocks, whose rounding may move it out of its interval. The mean over the group
# that it selects has only the group's rounding error, and a second mean corrects the choice of the group.
_REFINEMENTS = 2


def _root(breaks: Tensor, slope: int, start: Tensor) -> Tensor:
    """Return the root of an increasing, piecewise linear function, one per row.

    Left of all `breaks` its slope is `slope`, and its value at the smallest of them is `start`. The slope increases by
    one at each of the first half of the breaks, and decreases by one at each of the second half.
    """
    count = breaks.shape[-1]
    breaks, order = breaks.sort(-1)
    slopes = slope + torch.where(order < count // 2, 1, -1).to(breaks.dtype).cumsum(-1)
    rises = slopes[..., :-1] * breaks.diff(dim=-1)
    values = start + pad(rises.cumsum(-1), (1, 0))
    end = (
        (values < 0).sum(-1, keepdim=True).clamp(1, count - 1)
    )  # the root lies between breaks end - 1 and end
    low, high = breaks.gather(-1, end - 1), breaks.gather(-1, end)
    step = values.gather(-1, end - 1) / slopes.gather(-1, end - 1).clamp(min=1)
    return _clip(low - step, low, high)


def _clip(v: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return torch.minimum(torch.maximum(v, low), high)


def _mean_where(chosen: Tensor, x: Tensor, otherwise: Tensor) -> Tensor:
    count = chosen.sum(-1, keepdim=True)
    mean = torch.where(chosen, x, 0).sum(-1, keepdim=True) / count.clamp(min=1)
    return torch.where(count > 0, mean, otherwise)


def _both_ways(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Each force with both signs: the left force along a new first axis, the right force along a second."""
    return torch.stack([-left, left]).unsqueeze(1), torch.stack([-right, right]).unsqueeze(0)


def _blocks(x: Tensor, size: int) -> Tensor:
    return x.unflatten(-1, (-1, size))


def _next_power_of_two(d: int) -> int:
    return 1 << (d - 1).bit_length()
