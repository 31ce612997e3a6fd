"""Save the choice of a mapping: transformers' own `save_pretrained` does not write `attn_implementation`.

The choice is written into the model's configuration, `config.json`, as plain data:

    "regmax": {"attn_implementation": {"": "strong"},
               "mappings": {"strong": {"regularizer": "FusedLasso", "lam": 0.5, "gamma": 1.0}}}

The strengths that `sparsify_attention` chose are there too, by layer: a head that keeps softmax is null.

    "layers": {"encoder.layer.0.attention.self": {"mapping": "sparsemax", "heads": [{"gamma": 2.0}, null]}}
"""

from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, PreTrainedModel

import regmax.regularizers as regularizers
from regmax.integrations.transformers.heads import IMPLEMENTATION, described, restore
from regmax.integrations.transformers.layers import registered, restoring
from regmax.integrations.transformers.registry import register
from regmax.mappings import MAPPINGS
from regmax.nn.mappings import module
from regmax.regularizers import KernelRegularizer
from regmax.resolver import MappingLike, Resolved, resolve


def save_pretrained(model: PreTrainedModel, directory: str | Path, **options: Any) -> None:
    """`model.save_pretrained(directory)`, with the mapping and its strengths.

    Args:
        model: any model; one without a mapping of regmax is saved as by transformers.
        directory: the folder to write.
        options: further arguments of the method.

    Example:
        >>> import json, tempfile, transformers, regmax
        >>> sparse = regmax.integrations.transformers
        >>> _ = sparse.register()
        >>> config = transformers.GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=11)
        >>> model = transformers.AutoModel.from_config(config, attn_implementation="sparsemax")
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     sparse.save_pretrained(model, directory)
        ...     json.loads(Path(directory, "config.json").read_text())["regmax"]["attn_implementation"]
        {'': 'sparsemax'}
    """
    choice = _choice(model)
    ours = {name: attend for name in choice.values() if (attend := registered(name)) is not None}
    if ours:
        mappings = {name: _described(name, attend.mapping) for name, attend in ours.items()}
        model.config.regmax = {"attn_implementation": choice, "mappings": mappings}
        if IMPLEMENTATION in ours:
            model.config.regmax["layers"] = described(model)
    elif hasattr(model.config, "regmax"):  # from an earlier choice
        del model.config.regmax
    model.save_pretrained(directory, **options)


def from_pretrained(model_class: Any, directory: str | Path, **options: Any) -> Any:
    """`model_class.from_pretrained(directory)`, with the mapping that `save_pretrained` of this module saved.

    Args:
        model_class: `AutoModel`, `BertForMaskedLM`, ...
        directory: the folder to read.
        options: further arguments of the method; an explicit `attn_implementation` takes precedence.

    Example:
        >>> import tempfile, transformers, regmax
        >>> sparse = regmax.integrations.transformers
        >>> _ = sparse.register("fusedmax-strong", regmax.FusedLasso(lam=0.5))
        >>> config = transformers.GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=11)
        >>> model = transformers.AutoModel.from_config(config, attn_implementation="fusedmax-strong")
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     sparse.save_pretrained(model, directory)
        ...     model = sparse.from_pretrained(transformers.AutoModel, directory)
        >>> model.config._attn_implementation
        'fusedmax-strong'
    """
    saved = getattr(AutoConfig.from_pretrained(directory), "regmax", None)
    if saved is not None:
        for name, description in saved["mappings"].items():
            _restore(name, description)
        options.setdefault("attn_implementation", saved["attn_implementation"])
    with restoring():
        model = model_class.from_pretrained(directory, **options)
    if saved is not None and saved.get("layers") and _attends_by_heads(model):
        restore(model, saved["layers"])
    return model


def _attends_by_heads(model: PreTrainedModel) -> bool:
    return IMPLEMENTATION in _choice(model).values()


def _choice(model: PreTrainedModel) -> dict[str, str]:
    """The implementation of the model, and of its submodels that have their own configuration."""
    parts = {key: getattr(model.config, key, None) for key in model.config.sub_configs}
    choice = {key: part._attn_implementation for key, part in parts.items() if part is not None}
    return {"": model.config._attn_implementation, **choice}


def _described(name: str, mapping: MappingLike) -> dict[str, Any] | None:
    """A mapping as plain data; None if it is a function, which cannot be saved."""
    found = resolve(mapping)
    if not isinstance(found.omega, KernelRegularizer):
        return None
    learned = _learned(mapping)
    strengths = {**_fields(found.omega), "gamma": found.gamma}
    if any(isinstance(value, Tensor) and key not in learned for key, value in strengths.items()):
        raise TypeError(
            f"`save_pretrained(model)` can save only strengths that are numbers or learned. {name!r} has a tensor "
            "strength."
        )
    # Of a learned strength the values are in the layers; here is where it started, with its shape.
    plain = {
        key: value.detach().tolist() if isinstance(value, Tensor) else value
        for key, value in strengths.items()
    }
    described = {"regularizer": type(found.omega).__name__, **plain}
    return {**described, "learnable": list(learned)} if learned else described


def _fields(omega: KernelRegularizer) -> dict[str, Any]:
    # Not `asdict`, which copies tensors, and fails for one that is computed from a parameter.
    return {field.name: getattr(omega, field.name) for field in fields(omega)}


def _learned(mapping: MappingLike) -> tuple[str, ...]:
    """The names of the strengths that a module learns."""
    if not isinstance(mapping, torch.nn.Module):
        return ()
    names = (name.rpartition(".")[2] for name, _ in mapping.named_parameters())
    return tuple(name.removeprefix("raw_") for name in names)


def _restore(name: str, description: dict[str, Any] | None) -> None:
    there = registered(name)
    if description is None and there is None:
        raise ValueError(
            f"The model was saved with the mapping {name!r}, a function that is not saved. Call "
            f"`register({name!r}, mapping)` before `from_pretrained`."
        )
    if description is None or (there is not None and _same(_described(name, there.mapping), description)):
        return
    if there is not None:
        raise ValueError(
            f"The model was saved with a mapping {name!r} that differs from the one registered now."
        )
    register(name, _mapping(**description))


def _same(one: dict[str, Any] | None, other: dict[str, Any]) -> bool:
    """Whether two mappings are the same, up to the values at which learned strengths started."""
    learned = other.get("learnable", ())
    return (
        one is not None
        and one.keys() == other.keys()
        and all(one[key] == other[key] for key in one if key not in learned)
    )


def _mapping(
    regularizer: str, gamma: Any, learnable: list[str] | None = None, **strengths: Any
) -> MappingLike:
    found = getattr(regularizers, regularizer, None)
    if not (isinstance(found, type) and issubclass(found, KernelRegularizer)):
        raise ValueError(f"The model was saved with an unknown regularizer. Got {regularizer!r}.")
    if not learnable:
        return Resolved(found(**strengths), gamma)
    row = next(row for row in MAPPINGS.values() if row.regularizer is found)
    values = {
        key: torch.tensor(value) if isinstance(value, list) else value
        for key, value in {**strengths, "gamma": gamma}.items()
    }
    return module(row.name, learnable=tuple(learnable), **values)
