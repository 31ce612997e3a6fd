"""A mapping with its own strengths for each head of a layer; some heads may keep softmax."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from regmax.integrations.transformers.interface import ATTRIBUTE
from regmax.mappings import named
from regmax.regularizers import NegativeEntropy
from regmax.resolver import Resolved

IMPLEMENTATION = "sparsified"  # the name under which layers with such mappings attend

HeadStrengths = Mapping[str, float]


class HeadMappings(torch.nn.Module):
    """The mappings of the heads of one attention layer: strengths, or None for a head that keeps softmax.

    The strengths are neither parameters nor in the state dict: `save_pretrained` writes them into the configuration.

    Example:
        >>> HeadMappings("entmax", [{"alpha": 1.5, "gamma": 2.0}, None])
        HeadMappings(entmax, 1 of 2 heads)
    """

    sparse: Tensor  # the heads with the mapping, and those with softmax
    dense: Tensor

    def __init__(self, mapping: str, heads: Sequence[HeadStrengths | None]) -> None:
        super().__init__()
        self.row = named(mapping)
        self.heads = tuple(None if each is None else dict(each) for each in heads)
        self.implementation = IMPLEMENTATION
        for each in self.heads:
            self.row.check(each or {})
        for name, wanted in (("sparse", True), ("dense", False)):
            numbers = [i for i, each in enumerate(self.heads) if (each is not None) == wanted]
            self.register_buffer(name, torch.tensor(numbers, dtype=torch.long), persistent=False)

    def resolved_heads(self) -> Resolved:
        """The mapping of the sparse heads, with strengths (heads, 1, 1)."""
        chosen = [each for each in self.heads if each is not None]
        tensors = {
            name: torch.tensor(
                [each.get(name, default) for each in chosen], device=self.sparse.device
            ).reshape(-1, 1, 1)
            for name, default in self.row.strengths.items()
        }
        return Resolved(self.row.made(tensors), tensors["gamma"])

    def attend(self, attention: Callable[..., Any], q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        """`attention(q, k, v, **options)` with the mapping of each head, (batch, heads, length, width)."""
        if q.shape[1] != len(self.heads):
            raise ValueError(
                f"The layer has strengths for {len(self.heads)} heads. Got {q.shape[1]} heads: call "
                "`sparsify_attention` again."
            )
        if not len(self.sparse):
            return attention(q, k, v, mapping=Resolved(NegativeEntropy()), **options)
        if not len(self.dense):
            return attention(q, k, v, mapping=self.resolved_heads(), **options)
        parts = [
            attention(*self._part(heads, q, k, v), mapping=mapping, **self._options(heads, options))
            for heads, mapping in (
                (self.sparse, self.resolved_heads()),
                (self.dense, Resolved(NegativeEntropy())),
            )
        ]
        order = torch.argsort(torch.cat([self.sparse, self.dense]))
        if not options.get("return_weights"):
            return torch.cat(parts, 1)[:, order]
        outs, weights = zip(*parts, strict=True)
        return torch.cat(outs, 1)[:, order], torch.cat(weights, 1)[:, order]

    def _part(self, heads: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        shared = heads // (q.shape[1] // k.shape[1])
        return q[:, heads], k[:, shared], v[:, shared]

    def _options(self, heads: Tensor, options: dict[str, Any]) -> dict[str, Any]:
        """The options for some heads: a mask or bias may have its own slice for each."""
        sliced = {
            name: x[..., heads, :, :]
            for name in ("mask", "bias")
            if (x := options.get(name)) is not None and x.ndim > 2 and x.shape[-3] == len(self.heads) > 1
        }
        sinks = options.get("sinks")
        sliced |= {} if sinks is None else {"sinks": sinks[..., heads]}
        return {**options, **sliced, "enable_gqa": False}

    def extra_repr(self) -> str:
        """The mapping, and how many heads have it."""
        return f"{self.row.name}, {len(self.sparse)} of {len(self.heads)} heads"


def head_mappings(model: torch.nn.Module) -> dict[str, HeadMappings]:
    """The layers of a model whose heads have their own mappings, by name."""
    found = ((name, module._modules.get(ATTRIBUTE)) for name, module in model.named_modules())
    return {name: own for name, own in found if isinstance(own, HeadMappings)}


def described(model: torch.nn.Module) -> dict[str, Any]:
    """The mappings of every layer as plain data."""
    return {
        name: {"mapping": own.row.name, "heads": list(own.heads)}
        for name, own in head_mappings(model).items()
    }


def restore(model: Any, saved: Mapping[str, Any]) -> None:
    """Attach the mappings of `described`; a layer's name may lack or have the prefix of the base model."""
    modules, prefix, found = dict(model.named_modules()), f"{model.base_model_prefix}.", 0
    for name, each in saved.items():
        names = (name, name.removeprefix(prefix), f"{prefix}{name}")
        module = next((modules[key] for key in names if key in modules), None)
        if module is not None:
            module.add_module(ATTRIBUTE, HeadMappings(each["mapping"], each["heads"]))
            found += 1
    if saved and not found:
        raise ValueError(
            f"`from_pretrained`: {type(model).__name__} has none of the layers whose strengths were saved. "
            f"Got {next(iter(saved))!r}: load the model's own class."
        )
