"""Attention with the weights as a dense tensor: any device, any mapping, every transform and compiler."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from regmax.resolver import Resolved
from regmax.sparse_attention.inputs import Inputs, groups_of, scores_shape


def dense_attention(inputs: Inputs, mapping: Resolved) -> tuple[Tensor, Tensor]:
    """The output, and the weights before dropout."""
    k, v = repeat_heads(inputs)
    scores = (inputs.q * inputs.scale) @ k.mT
    if inputs.softcap is not None:
        scores = inputs.softcap * torch.tanh(scores / inputs.softcap)
    if inputs.bias is not None:
        scores = scores + inputs.bias.to(scores.dtype)
    y = mapping(scores, mask=full_mask(inputs))
    return (functional.dropout(y, inputs.dropout_p) if inputs.dropout_p > 0 else y) @ v, y


def softmax_attention(inputs: Inputs, gamma: Any) -> Tensor:
    """Torch's attention, which also gives zeros for rows without keys."""
    k, v = repeat_heads(inputs)
    mask, is_causal = inputs.mask, inputs.is_causal
    if inputs.mask is not None or inputs.bias is not None:
        # torch takes only one of a mask, a bias and causality.
        mask, is_causal = full_mask(inputs), False
    if inputs.bias is not None:
        bias = (inputs.bias / gamma).to(inputs.q.dtype)
        mask = bias if mask is None else torch.where(mask, bias, -torch.inf)
    return functional.scaled_dot_product_attention(
        inputs.q, k, v, mask, inputs.dropout_p, is_causal, scale=inputs.scale / gamma
    )


def repeat_heads(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Keys and values with one head per head of queries."""
    if groups_of(inputs) == 1:
        return inputs.k, inputs.v
    return inputs.k.repeat_interleave(groups_of(inputs), -3), inputs.v.repeat_interleave(
        groups_of(inputs), -3
    )


def full_mask(inputs: Inputs) -> Tensor | None:
    """The mask combined with causality, under which query i sees the keys up to i."""
    if not inputs.is_causal:
        return inputs.mask
    seen = torch.ones(scores_shape(inputs)[-2:], dtype=torch.bool, device=inputs.q.device).tril()
    return seen if inputs.mask is None else seen & inputs.mask
