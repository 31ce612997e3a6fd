"""`regmax.attention`: checks its arguments and chooses an implementation."""

from typing import Any, Literal, overload

import torch

from regmax.arrays import A, AnyArray, Array, framework
from regmax.resolver import MappingLike, Resolved, resolve
from regmax.sparse_attention import accelerated
from regmax.sparse_attention.dense import dense_attention, softmax_attention
from regmax.sparse_attention.fused import sparse_attention, suits
from regmax.sparse_attention.inputs import CALL, Inputs, check_inputs, check_options
from regmax.sparse_attention.plans import planned_attention
from regmax.sparse_attention.screen import KeyScreen
from regmax.sparse_attention.variants import with_variants, without_sink
from regmax.sparse_attention.weights import SparseWeights


@overload
def attention(
    q: Array[A],
    k: Array[A],
    v: Array[A],
    *,
    mapping: MappingLike = "fusedmax",
    mask: AnyArray | None = None,
    bias: AnyArray | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    scale: float | None = None,
    enable_gqa: bool = False,
    softcap: float | None = None,
    sinks: AnyArray | None = None,
    window: int | None = None,
    documents: AnyArray | None = None,
    key_screen: KeyScreen | None = None,
    return_weights: Literal[False] = False,
) -> A: ...
@overload
def attention(
    q: Array[A],
    k: Array[A],
    v: Array[A],
    *,
    mapping: MappingLike = "fusedmax",
    mask: AnyArray | None = None,
    bias: AnyArray | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    scale: float | None = None,
    enable_gqa: bool = False,
    softcap: float | None = None,
    sinks: AnyArray | None = None,
    window: int | None = None,
    documents: AnyArray | None = None,
    key_screen: KeyScreen | None = None,
    return_weights: Literal[True],
) -> tuple[A, A]: ...
@overload
def attention(
    q: Array[A],
    k: Array[A],
    v: Array[A],
    *,
    mapping: MappingLike = "fusedmax",
    mask: AnyArray | None = None,
    bias: AnyArray | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    scale: float | None = None,
    enable_gqa: bool = False,
    softcap: float | None = None,
    sinks: AnyArray | None = None,
    window: int | None = None,
    documents: AnyArray | None = None,
    key_screen: KeyScreen | None = None,
    return_weights: Literal["sparse"],
) -> tuple[A, SparseWeights]: ...
@overload
def attention(
    q: Array[A],
    k: Array[A],
    v: Array[A],
    *,
    mapping: MappingLike = "fusedmax",
    mask: AnyArray | None = None,
    bias: AnyArray | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    scale: float | None = None,
    enable_gqa: bool = False,
    softcap: float | None = None,
    sinks: AnyArray | None = None,
    window: int | None = None,
    documents: AnyArray | None = None,
    key_screen: KeyScreen | None = None,
    return_weights: bool | Literal["sparse"],
) -> A | tuple[A, A] | tuple[A, SparseWeights]: ...
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    mapping: MappingLike = "fusedmax",
    mask: Any | None = None,
    bias: Any | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    scale: float | None = None,
    enable_gqa: bool = False,
    softcap: float | None = None,
    sinks: Any | None = None,
    window: int | None = None,
    documents: Any | None = None,
    key_screen: KeyScreen | None = None,
    return_weights: bool | Literal["sparse"] = False,
    **unknown: object,
) -> Any:
    """Attention whose weights are sparse: Pi(scale q k^T + bias) v, with torch's `scaled_dot_product_attention` shapes.

    On the CPU, sparsemax, fusedmax, oscarmax, sqpnormmax and entmax never hold the weights densely: time and memory of
    the backward grow with the number of nonzero weights. That holds for every form of a mapping, for strengths that are
    learned or one per head or query, under `torch.compile` and under autocast. softmax is computed by torch. All other
    mappings, calls under a transform of `torch.func`, and JAX arrays (without dropout) are computed densely.

    Args:
        q: queries, `(..., heads, queries, e)`; leading dimensions broadcast and may be omitted.
        k: keys, `(..., heads, keys, e)`.
        v: values, `(..., heads, keys, e_v)`.
        mapping: from scores to weights: a name (`"fusedmax"`, `"fusedmax,lam=0.2"`), a regularizer, a module, or a
            callable `f(scores, dim, mask=...)`.
        mask: boolean, True = keep, broadcasts to `(..., heads, queries, keys)`. Masked keys are deleted; a query
            without keys gives zeros. A padding mask `(batch, 1, 1, keys)` is not expanded.
        bias: added to the scores, to which it broadcasts (ALiBi, relative positions); -inf deletes a key.
        is_causal: query i sees only the keys 0, ..., i; may be combined with a mask.
        dropout_p: the probability with which a weight is dropped, and the others scaled up.
        scale: the factor of the scores; `1 / sqrt(e)` if None.
        enable_gqa: k and v may have fewer heads, each shared by a group of query heads.
        softcap: bounds the scores before the bias: softcap tanh(scores / softcap), as in Gemma 2; computed densely.
        sinks: one more score per head, `(heads,)`, which takes weight but has no value, as in GPT-OSS. It is the last
            key for fusedmax; the weights that are returned do not contain it, so rows may sum to less than 1.
        window: a query sees only keys that are fewer than `window` positions away; as many queries as keys.
        documents: integers `(..., length)`, the document of each position of a row into which several are packed;
            queries see only keys of their document.
        key_screen: a `KeyScreen` of the keys, with which a call with few queries reads less of them; the result is the
            same.
        return_weights: True gives the dense weights too, "sparse" a `SparseWeights`, which carries no gradients;
            both before dropout.
        unknown: not accepted; the error for torch's `attn_mask` names the arguments to use instead.

    Returns:
        `(..., heads, queries, e_v)`, or that and the weights.

    Example:
        >>> import torch, regmax
        >>> q, k = torch.eye(3)[None], 4 * torch.eye(3)[None]
        >>> regmax.attention(q, k, torch.arange(3.0).reshape(1, 3, 1), mapping="sparsemax").flatten()
        tensor([0., 1., 2.])
    """
    if unknown:
        check_options(unknown)
    if return_weights not in (False, True, "sparse"):
        raise ValueError(
            f"`{CALL[:-1]}, return_weights=...)` must be a boolean or 'sparse'. Got {return_weights!r}."
        )
    # What most calls of a model in use do without.
    has_variants = not (softcap is None and sinks is None and window is None and documents is None)
    if bias is None and key_screen is None and not return_weights and not has_variants and dropout_p == 0:
        out = planned_attention(q, k, v, mapping, mask, is_causal, scale, enable_gqa)
        if out is not None:
            return out
    if framework(q) == "jax":
        from regmax.sparse_attention.jax import check_no_variants, jax_attention

        check_no_variants(softcap=softcap, sinks=sinks, window=window, documents=documents)
        return jax_attention(
            q, k, v, resolve(mapping), mask, bias, is_causal, dropout_p, scale, enable_gqa, return_weights
        )
    inputs = check_inputs(q, k, v, mask, bias, is_causal, dropout_p, scale, enable_gqa)
    if has_variants:
        inputs = with_variants(inputs, softcap, sinks, window, documents)
    if key_screen is not None:
        inputs = _with_screen(inputs, k, key_screen)
    attended = _attend(inputs, resolve(mapping), return_weights)
    if sinks is None or not return_weights:
        return attended
    return attended[0], without_sink(attended[1])


def _with_screen(inputs: Inputs, k: Any, key_screen: Any) -> Inputs:
    if not isinstance(key_screen, KeyScreen):
        raise TypeError(
            f"`{CALL[:-1]}, key_screen=...)` must be a KeyScreen. Got {type(key_screen).__name__}: make one with "
            "`regmax.KeyScreen(k)`."
        )
    if key_screen.shape != k.shape:
        raise ValueError(
            f"`{CALL[:-1]}, key_screen=...)` must be a copy of k of shape {tuple(k.shape)}. Got one of shape "
            f"{tuple(key_screen.shape)}."
        )
    # A sink is one more key, and leading dimensions may have been broadcast: then the copy is of other keys.
    is_copy = inputs.k.dtype == torch.float32 and inputs.k.shape == key_screen.shape
    return inputs._replace(screen=key_screen.parts()) if is_copy else inputs


def _attend(inputs: Inputs, found: Resolved, return_weights: bool | Literal["sparse"]) -> Any:
    if not return_weights and found.is_softmax and inputs.softcap is None:
        return softmax_attention(inputs, found.gamma)
    if suits(inputs, found):
        return sparse_attention(inputs, found, return_weights=return_weights)
    if not return_weights and accelerated.suits(inputs, found):
        return accelerated.accelerated_attention(inputs, found)
    out, y = dense_attention(inputs, found)
    if return_weights == "sparse":
        return out, SparseWeights.from_dense(y)
    return (out, y) if return_weights else out
