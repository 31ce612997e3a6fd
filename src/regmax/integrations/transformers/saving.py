"""Save the choice of a mapping: transformers' own `save_pretrained` does not write `attn_implementation`.

The choice is written into the model's configuration, `config.json`, as plain data:

    "regmax": {"attn_implementation": {"": "strong"},
               "mappings": {"strong": {"regularizer": "FusedLasso", "lam": 0.5, "gamma": 1.0}}}
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformers import AutoConfig, PreTrainedModel

import regmax.regularizers as regularizers
from regmax.integrations.transformers.registry import register, registered
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
    return model_class.from_pretrained(directory, **options)


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
    described = {"regularizer": type(found.omega).__name__, **asdict(found.omega), "gamma": found.gamma}
    if any(not isinstance(value, str | int | float) for value in described.values()):
        raise TypeError(
            f"`save_pretrained(model)` can save only strengths that are numbers. {name!r} has a tensor strength."
        )
    return described


def _restore(name: str, description: dict[str, Any] | None) -> None:
    there = registered(name)
    if description is None and there is None:
        raise ValueError(
            f"The model was saved with the mapping {name!r}, a function that is not saved. Call "
            f"`register({name!r}, mapping)` before `from_pretrained`."
        )
    if description is None or (there is not None and _described(name, there.mapping) == description):
        return
    if there is not None:
        raise ValueError(
            f"The model was saved with a mapping {name!r} that differs from the one registered now."
        )
    register(name, _mapping(**description))


def _mapping(regularizer: str, gamma: float, **strengths: float) -> Resolved:
    found = getattr(regularizers, regularizer, None)
    if not (isinstance(found, type) and issubclass(found, KernelRegularizer)):
        raise ValueError(f"The model was saved with an unknown regularizer. Got {regularizer!r}.")
    return Resolved(found(**strengths), gamma)
