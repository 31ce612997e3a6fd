"""A copy of keys in 8 bits, with which decoding reads a fraction of them: `KeyScreen`."""

from __future__ import annotations

import torch
from torch import Tensor

from regmax.kernels.native import available
from regmax.kernels.native.attention import Screen
from regmax.kernels.native.library import core

_LARGEST = 512  # the largest head dimension, as in the core
_NUMBERS = 16  # head dimensions are multiples of this


class KeyScreen:
    """Keys in 8 bits with certified errors, for `attention(..., key_screen=...)`.

    With few queries, as in decoding, attention bounds all scores from this copy, one byte per number, and reads only
    the keys that may have weight. The result has the same bits as without it. The copy must be one of exactly the keys
    of the call: only its shape is checked. Only a CPU with AVX-512 VNNI reads the copy; on other machines the object
    holds none, and attention reads the keys themselves.

    Args:
        keys: `(..., keys, e)`, float32 on the CPU; e a multiple of 16, at most 512.

    Example:
        >>> import torch, regmax
        >>> k = torch.randn(1, 2, 700, 32)
        >>> screen = regmax.KeyScreen(k)
        >>> screen.append(torch.randn(1, 2, 1, 32))
        >>> screen.shape
        torch.Size([1, 2, 701, 32])
    """

    def __init__(self, keys: Tensor) -> None:
        if not _fits(keys):
            raise ValueError(
                "`KeyScreen(keys)` needs float32 keys on the CPU, with a head dimension that is a multiple of 16, at "
                f"most {_LARGEST}. Got {keys.dtype} of shape {tuple(keys.shape)} on {keys.device}."
            )
        *batch, _, e = keys.shape
        self._length = 0
        self._integers = torch.empty(*batch, 0, e, dtype=torch.int8)
        self._scales = torch.empty(*batch, 0)
        self._bounds = torch.zeros(*batch, 2)
        self._is_copy = _reads_copies()
        self.append(keys)

    @staticmethod
    def supports(keys: Tensor) -> bool:
        """Whether a copy of these keys would be read on this machine."""
        return _fits(keys) and _reads_copies()

    @property
    def shape(self) -> torch.Size:
        """The shape of the keys."""
        *batch, _, e = self._integers.shape
        return torch.Size((*batch, self._length, e))

    @property
    def nbytes(self) -> int:
        """The memory of the copy, without room for more."""
        if not self._is_copy:
            return 0
        scales = self._scales[..., : self._length]
        return self.shape.numel() + 4 * scales.numel() + 4 * self._bounds.numel()

    def append(self, keys: Tensor) -> None:
        """Add keys `(..., new, e)` at the end."""
        *batch, new, e = keys.shape
        if keys.dtype != torch.float32 or [*batch, e] != [
            *self._integers.shape[:-2],
            self._integers.shape[-1],
        ]:
            expected = (*self._integers.shape[:-2], "new", self._integers.shape[-1])
            raise ValueError(
                f"`KeyScreen.append(keys)` needs float32 keys of shape {expected}. "
                f"Got {keys.dtype} of shape {tuple(keys.shape)}."
            )
        if self._is_copy:
            self._copy(keys.detach().contiguous())
        self._length += new

    def crop(self, length: int) -> None:
        """Keep the first `length` keys; the bounds stay, which are then larger than needed."""
        self._length = min(self._length, max(length, 0))

    def select(self, indices: Tensor) -> None:
        """Keep these entries of the first dimension, in this order, as beam search does."""
        self._integers, self._scales, self._bounds = (
            x[indices].contiguous() for x in (self._integers, self._scales, self._bounds)
        )

    def repeat(self, repeats: int) -> None:
        """Repeat each entry of the first dimension."""
        self._integers, self._scales, self._bounds = (
            x.repeat_interleave(repeats, 0) for x in (self._integers, self._scales, self._bounds)
        )

    def parts(self) -> Screen | None:
        """The arrays that the core reads; None without a copy."""
        return Screen(self._integers, self._scales, self._bounds) if self._is_copy else None

    def _copy(self, keys: Tensor) -> None:
        *_, new, e = keys.shape
        integers = torch.empty(keys.shape, dtype=torch.int8)
        scales, errors, norms = (torch.empty(keys.shape[:-1]) for _ in range(3))
        addresses = (x.data_ptr() for x in (integers, scales, errors, norms))
        core.quantise(keys.data_ptr(), keys.shape[:-1].numel(), e, *addresses)
        self._reserve(self._length + new)
        self._integers[..., self._length : self._length + new, :] = integers
        self._scales[..., self._length : self._length + new] = scales
        if new:
            largest = torch.stack((errors.amax(-1), norms.amax(-1)), -1)
            self._bounds = torch.maximum(self._bounds, largest)

    def _reserve(self, length: int) -> None:
        """Room for keys; it doubles, so that appending one at a time takes linear time."""
        room = self._scales.shape[-1]
        if length <= room:
            return
        more = max(length, room + room // 2 + 64) - room if room else length
        self._integers, self._scales = (
            torch.cat((x, x.new_empty(*batch, more, *rest)), dim)
            for x, batch, rest, dim in (
                (self._integers, self._integers.shape[:-2], self._integers.shape[-1:], -2),
                (self._scales, self._scales.shape[:-1], (), -1),
            )
        )


def _fits(keys: Tensor) -> bool:
    e = keys.shape[-1] if keys.ndim >= 2 else 0
    return keys.is_cpu and keys.dtype == torch.float32 and 0 < e <= _LARGEST and e % _NUMBERS == 0


def _reads_copies() -> bool:
    return available() and core.instruction_set() == "avx512"
