"""A cache with a copy of the keys in 8 bits: `ScreenedCache`."""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer

from regmax.sparse_attention.screen import KeyScreen

_ATTRIBUTE = "_regmax_screen"  # of a tensor of keys that a cache returns


class ScreenedLayer(DynamicLayer):
    """A layer of a cache that also keeps its keys in 8 bits; layers that cannot be copied only keep the keys."""

    screen: KeyScreen | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **options: Any
    ) -> tuple[Tensor, Tensor]:
        """Append keys and values; attention finds the copy at the keys that are returned."""
        before = self.get_seq_length()
        keys, values = super().update(key_states, value_states, *args, **options)
        if not KeyScreen.supports(keys):
            self.screen = None
        elif self.screen is not None and self.screen.shape[-2] == before:
            self.screen.append(key_states)
        else:
            self.screen = KeyScreen(keys)
        if self.screen is not None:
            setattr(keys, _ATTRIBUTE, self.screen)
        return keys, values

    def reset(self) -> None:
        """Forget all keys."""
        super().reset()
        self.screen = None

    def crop(self, *args: Any, **options: Any) -> None:
        """Remove the last keys."""
        super().crop(*args, **options)
        if self.screen is not None:
            self.screen.crop(self.get_seq_length())

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each sequence of the batch."""
        super().batch_repeat_interleave(repeats)
        if self.screen is not None:
            self.screen.repeat(repeats)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these sequences of the batch."""
        super().batch_select_indices(indices)
        if self.screen is not None:
            self.screen.select(indices)

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Reorder the batch for beam search."""
        super().reorder_cache(beam_idx)
        if self.screen is not None and self.get_seq_length() > 0:
            self.screen.select(beam_idx)


class ScreenedCache(DynamicCache):
    """A `DynamicCache` with a copy of the keys in 8 bits, one byte per number, for decoding with sparse mappings.

    Each step bounds all scores from the copy and reads only the keys that may have weight; the model's outputs have
    the same bits as with a `DynamicCache`. It copies float32 keys on a CPU with AVX-512 VNNI; elsewhere, and for layers
    with a sliding window, it is a `DynamicCache`.

    Example:
        >>> from regmax.integrations import transformers as sparse
        >>> cache = sparse.ScreenedCache()
        >>> keys, values = cache.update(torch.randn(1, 2, 600, 32), torch.randn(1, 2, 600, 32), 0)
        >>> cache.get_seq_length()
        600
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.layers = [_screened(layer) for layer in self.layers]
        if self.layer_class_to_replicate is DynamicLayer:
            self.layer_class_to_replicate = ScreenedLayer

    @property
    def screen_bytes(self) -> int:
        """The memory of the copies."""
        screens = (getattr(layer, "screen", None) for layer in self.layers)
        return sum(screen.nbytes for screen in screens if screen is not None)


def screen_of(keys: Tensor) -> KeyScreen | None:
    """The copy of the keys that a `ScreenedCache` returned."""
    screen: KeyScreen | None = getattr(keys, _ATTRIBUTE, None)
    return screen if screen is not None and screen.shape == keys.shape else None


def _screened(layer: Any) -> Any:
    """The same layer with a copy, unless it is of another kind, such as one with a sliding window."""
    if type(layer) is not DynamicLayer:
        return layer
    made = ScreenedLayer()
    if layer.is_initialized and layer.keys is not None and layer.values is not None:
        made.update(layer.keys, layer.values)
    return made
