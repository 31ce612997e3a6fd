"""Conversion of torch's masks (True = ignore, or added to the scores) to regmax's: True = keep, and a bias."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from regmax.frontends.torch.modes import is_plain


class Masks(NamedTuple):
    """The masks of `regmax.attention`; `keep` and `bias` broadcast to (batch, heads, queries, keys)."""

    keep: Tensor | None
    bias: Tensor | None
    is_causal: bool

    def extended(self, n: int, queries: int, keys: int, device: torch.device) -> "Masks":
        """The masks with n more keys, which every query sees, after the existing `keys`."""
        keep = self.keep
        if self.is_causal:  # the new keys come last, where causality would hide them
            causal = torch.ones(queries, keys, dtype=torch.bool, device=device).tril()
            keep = causal if keep is None else keep & causal
        keep = None if keep is None else functional.pad(keep, (0, n), value=True)
        bias = None if self.bias is None else functional.pad(self.bias, (0, n))
        return Masks(keep, bias, False)


def merge(padding: Tensor | None, places: Tensor | None, is_causal: bool, shape: tuple[int, ...]) -> Masks:
    """The key padding mask and the attention mask of a call whose scores have `shape`, as one.

    Example:
        >>> padding = torch.tensor([[False, True], [False, False]])
        >>> merge(padding, None, False, (2, 1, 2, 2)).keep[:, 0, 0].tolist()
        [[True, False], [True, True]]
    """
    batch, heads, queries, keys = shape
    parts = []
    if padding is not None:
        _check("key_padding_mask", padding, ((batch, keys), (keys,)) if batch == 1 else ((batch, keys),))
        parts.append(padding.reshape(batch, 1, 1, keys))
    if places is not None:
        _check("attn_mask", places, ((queries, keys), (batch * heads, queries, keys)))
        if not is_causal:  # otherwise it repeats causality
            parts.append(places if places.ndim == 2 else places.unflatten(0, (batch, heads)))
    keep, bias = None, None
    for part in parts:
        kept, added = _split(part)
        keep = kept if keep is None or kept is None else keep & kept
        bias = added if bias is None else bias if added is None else bias + added
    return Masks(keep, bias, is_causal)


def _split(mask: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """The boolean part, True = keep, and the additive part."""
    if mask.dtype == torch.bool:
        return ~mask, None
    # `nn.TransformerEncoderLayer` turns boolean masks into 0 and -inf. If reading the values is cheap,
    # convert them back, so that the sparse kernels need no bias.
    if mask.is_cpu and is_plain(mask) and not mask.requires_grad:
        keep = mask != -torch.inf
        if not mask.masked_fill(~keep, 0.0).any():
            return keep, None
    return None, mask


def _check(name: str, mask: Tensor, shapes: tuple[tuple[int, ...], ...]) -> None:
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise TypeError(
            f"`MultiheadAttention(..., {name}=...)` must be boolean, True = ignore, or floating. Got {mask.dtype}."
        )
    if tuple(mask.shape) not in shapes:
        raise ValueError(
            f"`MultiheadAttention(..., {name}=...)` must have shape {' or '.join(map(str, shapes))}. "
            f"Got {tuple(mask.shape)}."
        )
