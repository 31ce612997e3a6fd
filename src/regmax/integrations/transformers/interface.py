"""The two functions that transformers requires of an attention implementation: the attention, and its mask."""

import warnings
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor
from transformers.masking_utils import sdpa_mask
from transformers.utils.output_capturing import _active_collector

from regmax.integrations.transformers.caching import screen_of
from regmax.nn.recording import recorder
from regmax.resolver import MappingLike, Resolved, resolve
from regmax.sparse_attention import attention

# Options of some models that must not be ignored: the blocks that MiniMax selects, and a paged cache.
_UNSUPPORTED = ("block_indices", "cache")

ATTRIBUTE = "regmax_mapping"  # of a layer: its own copy of a mapping that learns


@dataclass(frozen=True, eq=False)
class Attend:
    """An attention function of transformers, with a mapping; layers have their own copies of one that learns."""

    mapping: MappingLike
    name: str = ""

    @property
    def learns(self) -> bool:
        """Whether the mapping has parameters."""
        return isinstance(self.mapping, torch.nn.Module) and any(True for _ in self.mapping.parameters())

    def attach(self, module: torch.nn.Module) -> torch.nn.Module:
        """Make a copy of the mapping a part of a layer."""
        mapping: Any = deepcopy(self.mapping)
        mapping.implementation = self.name
        module.add_module(ATTRIBUTE, mapping)
        return cast(torch.nn.Module, mapping)

    @cached_property
    def _resolved(self) -> Resolved | None:
        """The mapping unless it is a module, whose strengths may change: every layer of every call needs it."""
        return None if isinstance(self.mapping, torch.nn.Module) else resolve(self.mapping)

    def _mapping_of(self, module: torch.nn.Module) -> Any:
        own = module._modules.get(ATTRIBUTE)
        if own is not None and own.implementation == self.name:
            return own
        if self._resolved is not None:
            return self._resolved
        if not self.learns:
            return self.mapping
        warnings.warn(
            f"{type(module).__name__} got the parameters of {self.name!r} at its first call: an optimizer made before "
            "does not train them. Call `regmax.integrations.transformers.prepare(model)` first.",
            UserWarning,
            stacklevel=2,
        )
        return self.attach(module)

    def __call__(
        self,
        module: torch.nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        is_causal: bool | None = None,
        position_bias: Tensor | None = None,
        softcap: float | None = None,
        s_aux: Tensor | None = None,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend: query is (batch, heads, queries, width), the output (batch, queries, heads, width).

        `position_bias` is T5's; `scaling` multiplies the scores; `softcap` bounds them (Gemma 2); `s_aux` are the
        attention sinks of GPT-OSS. The mask is boolean, True = keep, or a float mask of the model or user, which is
        added to the scores. Sliding windows and packed sequences are in it.
        """
        _refuse(module, options)
        keep, bias = _split(attention_mask, position_bias)
        take, asked = recorder(module), _wants_weights(options)
        wanted = asked or take is not None
        screen = screen_of(key)
        attended: Any = self.attend(
            module,
            query.to(value.dtype),  # under autocast, normalised queries and keys (Qwen 3) are float32
            key.to(value.dtype),
            value,
            mask=keep,
            bias=bias,
            is_causal=attention_mask is None and _is_causal(module, is_causal) and query.shape[2] > 1,
            dropout_p=dropout if module.training else 0.0,
            scale=scaling,
            enable_gqa=key.shape[1] != query.shape[1],
            softcap=softcap,
            sinks=s_aux,
            return_weights=wanted,
            **({} if screen is None else {"key_screen": screen}),
        )
        out, y = attended if wanted else (attended, None)
        if take is not None and y is not None:
            take(y)
        return out.transpose(1, 2).contiguous(), y if asked else None

    def attend(self, module: torch.nn.Module, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        """`regmax.attention` with the mapping of a layer, or of each of its heads."""
        mapping = self._mapping_of(module)
        if hasattr(mapping, "attend"):  # `HeadMappings`
            return mapping.attend(attention, q, k, v, **options)
        return attention(q, k, v, mapping=resolve(mapping), **options)


def mask(*args: Any, **options: Any) -> Tensor | None:
    """The boolean mask (batch, 1, queries, keys), True = keep.

    `sdpa_mask` omits causal masks without padding, because SDPA rebuilds them: here they are never omitted. None is the
    mask of an encoder without padding.
    """
    options.update(allow_is_causal_skip=False)
    made: Any = sdpa_mask(*args, **options)
    return made


def _refuse(module: torch.nn.Module, options: dict[str, Any]) -> None:
    for name in _UNSUPPORTED:
        if options.get(name) is not None:
            raise NotImplementedError(
                f"{type(module).__name__} calls its attention with `{name}`, which regmax does not compute. Use "
                "`attn_implementation='eager'` for this model."
            )


def _split(
    attention_mask: Tensor | None, position_bias: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """Split a mask into the boolean mask and the bias of the scores."""
    if attention_mask is None:
        return None, position_bias
    if attention_mask.dtype == torch.bool:
        return attention_mask, position_bias
    # In a float mask transformers marks masked positions by the most negative number: they are deleted, not just low.
    keep = attention_mask > torch.finfo(attention_mask.dtype).min / 2
    bias = attention_mask.masked_fill(~keep, 0.0)
    return keep, bias if position_bias is None else bias + position_bias


def _is_causal(module: torch.nn.Module, is_causal: bool | None) -> bool:
    """Whether attention without a mask is causal: the caller's argument, or else the module's attribute."""
    return bool(getattr(module, "is_causal", False) if is_causal is None else is_causal)


def _wants_weights(options: dict[str, Any]) -> bool:
    """Whether the weights are used: the caller requests them, or transformers collects them from the layers.

    Weights cost a dense matrix, so they are computed only if used. Few models pass `output_attentions` down; for the
    others, transformers' collector records the layers' outputs.
    """
    if options.get("output_attentions"):
        return True
    collected = _active_collector.get()
    return collected is not None and any("attentions" in key for key in collected)
