"""Rows and their lengths."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

Lengths = Tensor | Sequence[int] | None


def length_mask(call: str, x: Tensor, lengths: Lengths) -> Tensor | None:
    """True before the end of each row of x, (d) or (n, d); None where every row is whole."""
    if x.ndim not in (1, 2):
        raise ValueError(f"`{call}` takes one row, or rows as a matrix. Got {x.ndim} dimensions.")
    if lengths is None:
        return None
    n, d = (1, *x.shape)[-2:]
    ends = torch.as_tensor(lengths, device=x.device).reshape(-1, 1)
    if len(ends) != n or bool(((ends < 1) | (ends > d)).any()):
        raise ValueError(
            f"`{call}`: `lengths` must have a number from 1 to {d} for each of {n} rows. Got {lengths}."
        )
    return (torch.arange(d, device=x.device) < ends).reshape(x.shape)


class ProxFunction(ABC):
    """A proximal operator on the first `lengths[i]` scores of each row; zero beyond.

    In torchsparseattn these are autograd functions. An object of one is called, so an object that can be called
    takes its place.
    """

    @abstractmethod
    def prox(self, x: Tensor) -> Tensor:
        """The operator on whole rows (n, d)."""

    def __call__(self, x: Tensor, lengths: Lengths = None) -> Tensor:
        """The operator on x, (d) or (n, d)."""
        mask = length_mask(f"{type(self).__name__}()(x, lengths)", x, lengths)
        if mask is None:
            return self.prox(x)
        rows, ends = x.reshape(-1, x.shape[-1]), mask.reshape(-1, x.shape[-1]).sum(-1)
        z = torch.zeros_like(rows)
        # The operators take no mask: rows of one length go together.
        for end in ends.unique().tolist():
            these = (ends == end).nonzero().squeeze(1)
            part = torch.nn.functional.pad(self.prox(rows[these, :end]), (0, rows.shape[1] - end))
            z = z.index_copy(0, these, part)
        return z.reshape(x.shape)
