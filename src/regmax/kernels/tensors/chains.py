"""Rows compacted to their kept positions, and the segments of such rows."""

import torch
from torch import Tensor
from torch.nn.functional import pad


class Chain:
    """The kept positions of every row, compacted to its front in order: deletion without data-dependent shapes."""

    def __init__(self, kept: Tensor) -> None:
        before = kept.cumsum(-1) - 1
        self.count = before[..., -1:] + 1
        deleted_before = (~kept).cumsum(-1) - 1
        self._place = torch.where(kept, before, self.count + deleted_before)
        self._index = torch.arange(kept.shape[-1], device=kept.device)

    def pack(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x).scatter(-1, self._place, x)

    def unpack(self, x: Tensor) -> Tensor:
        return x.gather(-1, self._place)

    @property
    def occupied(self) -> Tensor:
        """True at the packed positions that hold a kept position."""
        return self._index < self.count

    @property
    def edges(self) -> Tensor:
        """True if packed positions i and i + 1 both hold kept positions: d - 1 columns."""
        return self._index[1:] < self.count


class Runs:
    """Segments: maximal sequences of positions, each after the first `joined` to the one before it."""

    def __init__(self, joined: Tensor) -> None:
        index = torch.arange(joined.shape[-1], device=joined.device)
        self._joined = joined
        self.first = torch.where(joined, 0, index).cummax(-1).values
        ends = pad(~joined[..., 1:], (0, 1), value=True)
        last = torch.where(ends, index, joined.shape[-1])
        self.last = last.flip(-1).cummin(-1).values.flip(-1)

    def means(self, v: Tensor) -> Tensor:
        """Return the mean of every segment at each of its positions.

        The sums come from a segmented scan that doubles its reach log2(d) times. Unlike differences of a cumulative
        sum they have only the segment's rounding error, and unlike atomic additions they are deterministic.
        """
        total, linked, reach = v, self._joined, 1
        while reach < v.shape[-1]:
            total = total + torch.where(linked, _moved(total, reach), 0)
            linked = linked & _moved(linked, reach)
            reach *= 2
        return total.gather(-1, self.last) / (self.last - self.first + 1)


def equal_neighbours(x: Tensor) -> Tensor:
    """True where a value equals the one before it."""
    index = torch.arange(x.shape[-1], device=x.device)
    # By index: a slice of d - 1 columns would make an exported program refuse d = 2.
    return (x == x.index_select(-1, (index - 1).clamp(min=0))) & (index > 0)


def equalized(z: Tensor, joined: Tensor) -> Tensor:
    """Give `joined` neighbours, which rounding may have separated, one value: that of the first in their segment."""
    return first_values(z, equal_neighbours(z) | joined)


def first_values(x: Tensor, joined: Tensor) -> Tensor:
    """Return at every position the first value of its segment, in operations that ONNX has."""
    number = (~joined).to(torch.int64).cumsum(-1) - 1
    # All but the first values are written to a place that is not read.
    place = torch.where(joined, x.shape[-1], number)
    return torch.zeros_like(pad(x, (0, 1))).scatter(-1, place, x).gather(-1, number)


def _moved(x: Tensor, reach: int) -> Tensor:
    """Entry i of the result is entry i - reach of `x`, zero if there is none."""
    return pad(x[..., :-reach], (reach, 0))
