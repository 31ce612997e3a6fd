"""Mappings with learned strengths inside a model: each attention layer has a copy, whose parameters are the model's.

transformers looks an implementation up when a layer runs, too late for an optimizer. So layers get their copy when they
are built: torch tells of every module that becomes part of another.
"""

import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_module_registration_hook
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from regmax.integrations.transformers.heads import IMPLEMENTATION
from regmax.integrations.transformers.interface import ATTRIBUTE, Attend
from regmax.nn.strengths import Strengths

_restoring: ContextVar[bool] = ContextVar("restoring", default=False)
_warned: list[Any] = []  # weak references: configurations have no hash


def registered(name: str | None) -> Attend | None:
    """The implementation registered under this name, if it is regmax's."""
    function = ALL_ATTENTION_FUNCTIONS.get(name)
    return function if isinstance(function, Attend) else None


def prepare(model: PreTrainedModel) -> int:
    """Give each attention layer of a model its own copy of a mapping that learns; drop copies of earlier choices.

    Models that are built with the implementation have them already. Call this after `set_attn_implementation`, and
    before an optimizer is made.

    Args:
        model: a model whose `attn_implementation` is a registered mapping, or no longer one.

    Returns:
        How many layers have a copy now.

    Example:
        >>> import transformers, regmax
        >>> sparse = regmax.integrations.transformers
        >>> _ = sparse.register("learned", regmax.nn.Fusedmax(learnable="lam"))
        >>> config = transformers.GPT2Config(n_layer=2, n_embd=8, n_head=2, vocab_size=11)
        >>> model = transformers.AutoModel.from_config(config)
        >>> model.set_attn_implementation("learned")
        >>> sparse.prepare(model)
        2
        >>> [name for name, _ in model.named_parameters() if "lam" in name]
        ['h.0.attn.regmax_mapping.strengths.raw_lam', 'h.1.attn.regmax_mapping.strengths.raw_lam']
    """
    for module in model.modules():
        if ATTRIBUTE in module._modules:
            delattr(module, ATTRIBUTE)
    for module in reversed(list(model.modules())):  # inner layers first
        _attach(module)
    return sum(ATTRIBUTE in module._modules for module in model.modules())


@contextmanager
def restoring() -> Iterator[None]:
    """While `from_pretrained` of this package runs: it restores the mapping, or was told another."""
    token = _restoring.set(True)
    try:
        yield
    finally:
        _restoring.reset(token)


def _attach(module: torch.nn.Module) -> None:
    """A copy of the mapping for a layer that calls its implementation itself."""
    if "Attention" not in type(module).__name__:
        return
    attend = registered(getattr(getattr(module, "config", None), "_attn_implementation", None))
    if attend is None or not attend.learns or any(ATTRIBUTE in part._modules for part in module.modules()):
        return
    mapping = attend.attach(module)
    if (
        torch.empty(0).device.type == "meta"
    ):  # `from_pretrained` builds models there, and loads them afterwards
        for part in mapping.modules():
            if isinstance(part, Strengths):
                part.__class__ = _LoadedStrengths


class _LoadedStrengths(Strengths):
    """Strengths that keep their values if a checkpoint has none: transformers would put uninitialised memory there."""

    def __setattr__(self, name: str, value: Any) -> None:
        initial = self._parameters.get(name)
        loaded = self.__dict__.setdefault("_loaded", set())
        super().__setattr__(name, value)
        if initial is not None and name not in loaded and isinstance(value, Tensor) and not value.is_meta:
            loaded.add(name)
            if not getattr(value, "_is_hf_initialized", False):
                with torch.no_grad():
                    value.copy_(initial)


def _on_registration(_: Any, __: str, module: torch.nn.Module | None) -> None:
    config = getattr(module, "config", None)
    if module is None or not isinstance(config, PreTrainedConfig):
        return
    _attach(module)
    _warn_if_dropped(config, module)


def _warn_if_dropped(config: PreTrainedConfig, module: torch.nn.Module) -> None:
    """A model that was saved with a mapping, and is built without one."""
    saved = getattr(config, "regmax", None)
    if not isinstance(saved, dict) or _restoring.get():
        return
    name = config._attn_implementation
    # The strengths of heads come only with `from_pretrained` of this package.
    complete = name != IMPLEMENTATION or any(ATTRIBUTE in part._modules for part in module.modules())
    if registered(name) is not None and complete:
        return
    if any(each() is config for each in _warned):
        return
    _warned[:] = [each for each in _warned if each() is not None] + [weakref.ref(config)]
    names = ", ".join(saved.get("mappings", {}))
    warnings.warn(
        f"The model was saved by regmax with the mapping {names}, and is built with "
        f"attn_implementation={config._attn_implementation!r}: the mapping is dropped. Load it with "
        "`regmax.integrations.transformers.from_pretrained(model_class, directory)`.",
        UserWarning,
        stacklevel=2,
    )


register_module_module_registration_hook(_on_registration)
