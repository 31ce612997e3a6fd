"""Attention weights as compressed sparse rows (CSR)."""

from math import prod
from typing import NamedTuple

import torch
from torch import Tensor


class SparseWeights(NamedTuple):
    """The nonzero weights, row after row; row r of shape[:-1], flattened, has the entries starts[r] to starts[r + 1].

    Example:
        >>> import torch
        >>> weights = SparseWeights.from_dense(torch.tensor([[0.0, 1.0], [0.25, 0.75]]))
        >>> weights.starts.tolist(), weights.columns.tolist(), weights.values.tolist()
        ([0, 1, 3], [1, 0, 1], [1.0, 0.25, 0.75])
        >>> weights.to_dense()
        tensor([[0.0000, 1.0000],
                [0.2500, 0.7500]])
    """

    starts: Tensor  # (rows + 1,), int64
    columns: Tensor  # (nonzeros,), int32, increasing within a row
    values: Tensor  # (nonzeros,)
    shape: tuple[int, ...]  # of the dense weights, (..., queries, keys)

    @classmethod
    def from_dense(cls, y: Tensor) -> "SparseWeights":
        """The sparse form of dense weights, without gradients."""
        rows = y.detach().reshape(prod(y.shape[:-1]), y.shape[-1])
        nonzero = rows != 0
        starts = torch.zeros(rows.shape[0] + 1, dtype=torch.int64, device=y.device)
        torch.cumsum(nonzero.sum(-1), 0, out=starts[1:])
        return cls(starts, nonzero.nonzero()[:, 1].to(torch.int32), rows[nonzero], tuple(y.shape))

    def to_dense(self) -> Tensor:
        """The weights as a dense tensor."""
        d = self.shape[-1]
        rows = torch.arange(len(self.starts) - 1, device=self.starts.device)
        places = rows.repeat_interleave(self.starts.diff()) * d + self.columns
        y = self.values.new_zeros(prod(self.shape))
        y[places] = self.values
        return y.reshape(self.shape)
