"""Check that a model calls its attention implementation: some models accept the name but compute softmax."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, PreTrainedModel

from regmax.integrations.transformers.interface import Attend
from regmax.integrations.transformers.layers import registered

NO_CHOICE = "This model has attention of its own, which cannot be chosen: use another model."


def check(model: PreTrainedModel, inputs: Mapping[str, Any]) -> dict[str, int]:
    """Run a model once and count the calls of regmax by each attention module; raise if one does not call it.

    Args:
        model: a model whose `attn_implementation` is a registered mapping.
        inputs: keyword arguments of the model, e.g. a tokenizer's output.

    Returns:
        The number of calls by module name.

    Raises:
        RuntimeError: the model never calls regmax, or has attention that ran without it (DeBERTa-v2, Bloom, XLNet).

    Example:
        >>> import torch, transformers, regmax
        >>> _ = regmax.integrations.transformers.register()
        >>> config = transformers.GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=11)
        >>> model = transformers.AutoModel.from_config(config, attn_implementation="fusedmax")
        >>> regmax.integrations.transformers.check(model, {"input_ids": torch.tensor([[1, 2, 3]])})
        {'h.0.attn': 1}
    """
    ours = {name: attend for name in _implementations(model) if (attend := registered(name)) is not None}
    if not ours:
        advice = "Call `register()`, then `model.set_attn_implementation(...)`."
        if not chooses(model):
            advice = NO_CHOICE
        raise RuntimeError(
            f"`check(model, ...)`: {type(model).__name__} does not use regmax: its `attn_implementation` is "
            f"{model.config._attn_implementation!r}. {advice}"
        )
    calls: Counter[torch.nn.Module] = Counter()
    ran: set[torch.nn.Module] = set()
    with _counted(ours, calls), observed(model, ran), evaluated(model):
        model(**inputs)
    names = {module: name for name, module in model.named_modules()}
    raise_for_others(
        "check(model, ...)", model, {names[module] for module in ran}, {names[module] for module in calls}
    )
    return {names[module]: n for module, n in calls.items()}


def chooses(model: PreTrainedModel) -> bool:
    """Whether a model asks for an implementation: the others ignore `set_attn_implementation`, with a warning."""
    return bool(getattr(model, "_can_set_attn_implementation", lambda: True)())


def _implementations(model: PreTrainedModel) -> set[str]:
    """The names in the model's configuration, and in those of its submodels."""
    models = (module for module in model.modules() if isinstance(module, PreTrainedModel))
    return {str(each.config._attn_implementation) for each in models}


@contextmanager
def _counted(ours: dict[str, Attend], calls: "Counter[torch.nn.Module]") -> Iterator[None]:
    """Count the calls of the registered functions inside the context."""

    def counting(attend: Attend) -> Any:
        def call(module: torch.nn.Module, *args: Any, **options: Any) -> tuple[Tensor, Tensor | None]:
            calls[module] += 1
            return attend(module, *args, **options)

        return call

    try:
        for name, attend in ours.items():
            AttentionInterface.register(name, counting(attend))
        yield
    finally:
        for name, attend in ours.items():
            AttentionInterface.register(name, attend)


@contextmanager
def observed(model: PreTrainedModel, ran: set[torch.nn.Module]) -> Iterator[None]:
    """Record which modules with attention in their class name run."""
    hooks = [
        module.register_forward_hook(lambda module, *_: ran.add(module))
        for module in model.modules()
        if "Attention" in type(module).__name__
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def evaluated(model: PreTrainedModel) -> Iterator[None]:
    """Evaluation mode, without gradients."""
    training = {module: module.training for module in model.modules()}
    try:
        with torch.no_grad():
            model.eval()
            yield
    finally:
        for module, mode in training.items():
            module.training = mode


def raise_for_others(call: str, model: PreTrainedModel, ran: set[str], called: set[str]) -> None:
    """An attention module that ran must have called regmax, contain one that did, or be inside one."""

    def related(one: str, other: str) -> bool:
        return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")

    silent = sorted(name for name in ran if not any(related(name, other) for other in called))
    if not called or silent:
        where = f" in {', '.join(silent[:3])}{' ...' if len(silent) > 3 else ''}" if silent else ""
        raise RuntimeError(
            f"`{call}`: {type(model).__name__} computes attention{where} without regmax, although its "
            f"`attn_implementation` is {model.config._attn_implementation!r}: this model ignores it."
        )
