"""Multi-head attention with any mapping, under torch's constructor, arguments and state dict."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from regmax.arrays import A, AnyArray, Array
from regmax.nn.mappings import HasMapping
from regmax.nn.masks import merge
from regmax.nn.recording import recorder
from regmax.resolver import MappingLike, resolve
from regmax.sparse_attention import attention


class MultiheadAttention(torch.nn.MultiheadAttention, HasMapping):
    """`torch.nn.MultiheadAttention` with a mapping in place of softmax; with "softmax" it is the same function.

    It takes torch's arguments, loads torch's state dict, and keeps torch's convention for masks, which is the
    opposite of the rest of this library: in a boolean `key_padding_mask` or `attn_mask` True means *ignore*. A float
    mask is added to the scores, and -inf deletes. A query without keys gets zeros; torch gives NaN.

    Args:
        embed_dim: the model's width, `num_heads` times that of a head.
        num_heads: the number of heads.
        dropout: the probability with which a weight is dropped in training.
        bias: whether the projections have biases.
        add_bias_kv: whether a learned key and value is appended to every sequence.
        add_zero_attn: whether a key and value of zeros is appended to every sequence.
        kdim: the keys' width, if it is not `embed_dim`.
        vdim: the values' width, if it is not `embed_dim`.
        batch_first: whether sequences are (batch, length, width) and not (length, batch, width).
        device: where the parameters are.
        dtype: the parameters' type.
        mapping: a name (`"fusedmax,lam=0.2"`), a regularizer, a callable `f(scores, dim, mask=...)` or a module of
            `regmax.nn`, whose learnable strengths then become parameters of this one.

    Example:
        >>> import torch, regmax
        >>> attend = regmax.nn.MultiheadAttention(16, 2, batch_first=True, mapping="sparsemax")
        >>> x = torch.randn(3, 5, 16)
        >>> output, y = attend(x, x, x)
        >>> output.shape, y.shape
        (torch.Size([3, 5, 16]), torch.Size([3, 5, 5]))

        One strength per head, learned:

        >>> fusedmax = regmax.nn.Fusedmax(lam=torch.full((2, 1, 1), 0.1), learnable="lam")
        >>> attend = regmax.nn.MultiheadAttention(16, 2, mapping=fusedmax)
    """

    records_attention = True

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        mapping: MappingLike = "fusedmax",
    ) -> None:
        super().__init__(
            embed_dim,
            num_heads,
            dropout,
            bias,
            add_bias_kv,
            add_zero_attn,
            kdim,
            vdim,
            batch_first,
            device,
            dtype,
        )
        self.mapping = mapping

    def _reset_parameters(self) -> None:
        self._qkv_same_embed_dim = self.in_proj_weight is not None
        super()._reset_parameters()
        # In inference `nn.TransformerEncoderLayer` reads the weights of its attention and computes softmax itself,
        # without a call of `forward`. It does not do so if the projections are marked as separate.
        self._qkv_same_embed_dim = False

    if TYPE_CHECKING:  # torch's accepts and returns anything

        def __call__(
            self,
            query: Array[A],
            key: Array[A],
            value: Array[A],
            key_padding_mask: AnyArray | None = None,
            need_weights: bool = True,
            attn_mask: AnyArray | None = None,
            average_attn_weights: bool = True,
            is_causal: bool = False,
        ) -> tuple[A, A | None]: ...

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend; see `torch.nn.MultiheadAttention.forward`.

        Args:
            query: (length, batch, width), (batch, length, width) if `batch_first`, or (length, width).
            key: likewise.
            value: likewise.
            key_padding_mask: (batch, keys): True, or -inf, where a key is padding.
            need_weights: whether to return weights, before dropout; without them the sparse kernels need no dense
                matrix.
            attn_mask: (queries, keys) or (batch * heads, queries, keys): True, or -inf, at keys a query may not see.
            average_attn_weights: whether weights are averaged over the heads.
            is_causal: each query sees the keys up to its own position. An `attn_mask` given with it must be causal too;
                unlike in torch, none is needed.

        Returns:
            The output, shaped like the query, and the weights or None.
        """
        _check_inputs(query, key, value)
        batched = query.ndim == 3
        q, k, v = (self._heads(part, batched) for part in self._project(query, key, value))
        masks = merge(key_padding_mask, attn_mask, is_causal, (*q.shape[:-1], k.shape[-2]))
        extra = self._extra(k)
        if extra:
            masks = masks.extended(len(extra), q.shape[-2], k.shape[-2], q.device)
            keys, values = zip(*extra, strict=True)
            k, v = torch.cat([k, *keys], 2), torch.cat([v, *values], 2)
        take = recorder(self)
        wanted = need_weights or take is not None
        attended: Any = attention(
            q,
            k,
            v,
            mapping=resolve(self.mapping),
            mask=masks.keep,
            bias=masks.bias,
            is_causal=masks.is_causal,
            dropout_p=self.dropout if self.training else 0.0,
            return_weights=wanted,
        )
        out, y = attended if wanted else (attended, None)
        if take is not None and y is not None:
            take(y)
        y = y if need_weights else None
        if y is not None and average_attn_weights:
            y = y.mean(1)
        out = self.out_proj(out.transpose(1, 2).flatten(-2))  # (batch, queries, embed_dim)
        if not batched:
            return out[0], None if y is None else y[0]
        return out if self.batch_first else out.transpose(0, 1), y

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        if self.in_proj_weight is None:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        elif query is key and key is value:  # one product, not three
            return functional.linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
        else:
            weights = self.in_proj_weight.chunk(3)
        biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        inputs = (query, key, value)
        return tuple(functional.linear(x, w, b) for x, w, b in zip(inputs, weights, biases, strict=True))

    def _heads(self, x: Tensor, batched: bool) -> Tensor:
        """(batch, heads, length, width of a head), whatever the input's layout."""
        x = x.unflatten(-1, (self.num_heads, self.head_dim))
        if not batched:
            return x.unsqueeze(0).transpose(1, 2)
        return x.transpose(1, 2) if self.batch_first else x.permute(1, 2, 0, 3)

    def _extra(self, k: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Additional keys and values that every query sees: the learned one, and the one of zeros."""
        shape = (k.shape[0], self.num_heads, 1, self.head_dim)
        extra = []
        if self.bias_k is not None and self.bias_v is not None:
            # (1, 1, embed_dim) -> (batch, heads, 1, width of a head)
            key, value = (b.view(1, *shape[1:]).expand(shape).to(k) for b in (self.bias_k, self.bias_v))
            extra.append((key, value))
        if self.add_zero_attn:
            extra.append((k.new_zeros(shape), k.new_zeros(shape)))
        return extra

    def extra_repr(self) -> str:
        """The mapping, unless it is a module, which has its own repr."""
        return "" if isinstance(self.mapping, torch.nn.Module) else f"mapping={self.mapping!r}"


def _check_inputs(query: Tensor, key: Tensor, value: Tensor) -> None:
    if any(x.is_nested for x in (query, key, value)):
        raise TypeError(
            "`MultiheadAttention(query, key, value)` takes no nested tensors. Inside `nn.TransformerEncoder` pass "
            "`enable_nested_tensor=False`, which `regmax.replace_attention` does by itself."
        )
    if query.ndim not in (2, 3) or not query.ndim == key.ndim == value.ndim:
        shapes = ", ".join(str(tuple(x.shape)) for x in (query, key, value))
        raise ValueError(
            "`MultiheadAttention(query, key, value)` needs three sequences, batched (3 dimensions) or not (2). "
            f"Got {shapes}."
        )
