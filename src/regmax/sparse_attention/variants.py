"""Sliding windows, packed documents and attention sinks, reduced to masks, a bias and one more key."""

from typing import Any

import torch
from torch import Tensor

from regmax.frontends.checks import broadcasts
from regmax.regularizers.base import Bounds
from regmax.sparse_attention.dense import full_mask
from regmax.sparse_attention.inputs import CALL, Inputs
from regmax.sparse_attention.weights import SparseWeights

_SOFTCAP = Bounds(f"{CALL[:-1]}, softcap=...)", above=0.0)


def with_variants(
    inputs: Inputs, softcap: float | None, sinks: Any, window: int | None, documents: Any
) -> Inputs:
    """Apply the options; `softcap` is checked and kept, because only dense attention computes it."""
    if softcap is not None:
        _SOFTCAP.check(softcap)
        inputs = inputs._replace(softcap=float(softcap))
    if window is not None:
        inputs = _masked(inputs, _in_window(inputs, window))
    if documents is not None:
        inputs = _masked(inputs, _same_document(inputs, documents))
    return inputs if sinks is None else _with_sink(inputs, sinks)


def without_sink(weights: Any) -> Any:
    """Dense or sparse weights without the last key."""
    if isinstance(weights, Tensor):
        return weights[..., :-1]
    starts, columns, values, shape = weights
    keys = shape[-1] - 1
    kept = columns < keys
    # starts[r] counts the entries before row r: subtract those of the sink.
    dropped = torch.zeros(len(columns) + 1, dtype=starts.dtype, device=starts.device)
    torch.cumsum(~kept, 0, out=dropped[1:])
    return SparseWeights(starts - dropped[starts], columns[kept], values[kept], (*shape[:-1], keys))


def _masked(inputs: Inputs, keep: Tensor) -> Inputs:
    return inputs._replace(mask=keep if inputs.mask is None else inputs.mask & keep)


def _in_window(inputs: Inputs, window: int) -> Tensor:
    """Whether a key is fewer than `window` positions from the query, (queries, keys)."""
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        raise ValueError(f"`{CALL[:-1]}, window=...)` must be a number of keys, at least 1. Got {window!r}.")
    positions = torch.arange(_length(inputs, "window"), device=inputs.q.device)
    return (positions[:, None] - positions).abs() < window


def _length(inputs: Inputs, option: str) -> int:
    """The number of queries and keys: with others it is unknown which position a query has."""
    queries, keys = inputs.q.shape[-2], inputs.k.shape[-2]
    if queries != keys:
        raise ValueError(
            f"`{CALL[:-1]}, {option}=...)` needs as many queries as keys. Got {queries} and {keys}: pass a mask."
        )
    return queries


def _same_document(inputs: Inputs, documents: Any) -> Tensor:
    """Whether query and key belong to one document, (..., 1, queries, keys)."""
    call = f"{CALL[:-1]}, documents=...)"
    if (
        not isinstance(documents, Tensor)
        or documents.dtype.is_floating_point
        or documents.dtype == torch.bool
    ):
        kind = documents.dtype if isinstance(documents, Tensor) else type(documents).__name__
        raise TypeError(f"`{call}` must be a tensor of integers. Got {kind}.")
    length = _length(inputs, "documents")
    wanted = (*inputs.q.shape[:-3], length)
    if documents.ndim < 1 or documents.shape[-1] != length or not broadcasts(documents.shape, wanted):
        raise ValueError(f"`{call}` must broadcast to the shape {wanted}. Got {tuple(documents.shape)}.")
    same = documents[..., :, None] == documents[..., None, :]
    return same if inputs.q.ndim < 3 else same.unsqueeze(-3)


def _with_sink(inputs: Inputs, sinks: Any) -> Inputs:
    """A last key of zeros whose value is zero and whose bias is the sink's score; every query sees it."""
    call, heads = f"{CALL[:-1]}, sinks=...)", inputs.q.shape[:-2]
    if not isinstance(sinks, Tensor) or not sinks.dtype.is_floating_point:
        kind = sinks.dtype if isinstance(sinks, Tensor) else type(sinks).__name__
        raise TypeError(f"`{call}` must be a floating-point tensor. Got {kind}.")
    if not broadcasts(sinks.shape, heads):
        raise ValueError(
            f"`{call}` must have one score per head, {tuple(heads[-1:])}. Got {tuple(sinks.shape)}."
        )
    k, v = (torch.cat([x, x.new_zeros(*x.shape[:-2], 1, x.shape[-1])], -2) for x in (inputs.k, inputs.v))
    keys = inputs.k.shape[-2]
    bias = sinks.new_zeros(1, keys) if inputs.bias is None else _with_rows(inputs.bias)
    slices = torch.broadcast_shapes(bias.shape[:-2], sinks.shape)  # type: ignore[no-untyped-call]
    bias = bias.expand(*slices, bias.shape[-2], keys)
    column = sinks.to(bias.dtype)[..., None, None].expand(*slices, bias.shape[-2], 1)
    mask = full_mask(inputs)
    if mask is not None:
        mask = _with_rows(mask)
        mask = mask.expand(*mask.shape[:-1], keys)
        mask = torch.cat([mask, mask.new_ones(*mask.shape[:-1], 1)], -1)
    return inputs._replace(k=k, v=v, bias=torch.cat([bias, column], -1), mask=mask, is_causal=False)


def _with_rows(x: Tensor) -> Tensor:
    """(..., rows, keys): a mask or bias may lack both."""
    return x if x.ndim >= 2 else x.reshape(1, -1)
