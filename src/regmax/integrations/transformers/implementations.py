"""The attention implementations of a model and its submodels: set, restored, and restored on failure."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

from transformers import PreTrainedModel

from regmax.integrations.transformers.heads import IMPLEMENTATION
from regmax.integrations.transformers.interface import ATTRIBUTE

CALIBRATING = (
    "sparsifying"  # softmax by regmax: of every model, also of one that torch's attention does not support
)
Implementations = list[tuple[Any, str]]  # a configuration and its implementation


def softmax_implementations(model: PreTrainedModel) -> Implementations:
    """The implementations of the model and its submodels; a sparsified model's is softmax's."""
    models = [module for module in model.modules() if isinstance(module, PreTrainedModel)]
    names = [(each.config, str(each.config._attn_implementation)) for each in models]
    return [(config, CALIBRATING if name == IMPLEMENTATION else name) for config, name in names]


def restore_implementations(original: Implementations) -> None:
    """Set each configuration's implementation."""
    for config, name in original:
        config._attn_implementation = name


def choose_implementation(model: PreTrainedModel, name: str) -> None:
    """Set the implementation of a model and all its submodels."""
    if model.config._attn_implementation != name:
        model.set_attn_implementation(name)
        # transformers 5.15 leaves out submodels whose configurations have the model's class, such as the stacks of T5.
        for module in model.modules():
            if isinstance(module, PreTrainedModel) and type(module.config) is type(model.config):
                module.config._attn_implementation = name


def copy_with(model: PreTrainedModel, original: Implementations) -> PreTrainedModel:
    """The model with its original attention."""
    implementations = [name for _, name in original]
    teacher = deepcopy(model).requires_grad_(False)
    configs = (module.config for module in teacher.modules() if isinstance(module, PreTrainedModel))
    restore_implementations(list(zip(configs, implementations, strict=True)))
    return teacher


@contextmanager
def as_before_on_failure(model: PreTrainedModel) -> Iterator[list[Callable[[], object]]]:
    """Restore the implementations and the layers' own mappings if the call fails or is interrupted.

    The list that it yields is for further functions to call in that case.
    """
    further: list[Callable[[], object]] = []
    models = [module for module in model.modules() if isinstance(module, PreTrainedModel)]
    implementations = [(each.config, str(each.config._attn_implementation)) for each in models]
    own = {module: module._modules.get(ATTRIBUTE) for module in model.modules()}
    try:
        yield further
    except BaseException:
        for module in list(model.modules()):
            module._modules.pop(ATTRIBUTE, None)
        for module, mapping in own.items():
            if mapping is not None:
                module.add_module(ATTRIBUTE, mapping)
        restore_implementations(implementations)
        for undo in further:
            undo()
        raise
