"""What a sparsified model attends to, and how far its outputs are from the original's."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from regmax.integrations.transformers.calibration import counts
from regmax.integrations.transformers.distillation import Batch, position_weight, relative_error
from regmax.integrations.transformers.heads import IMPLEMENTATION
from regmax.integrations.transformers.implementations import (
    Implementations,
    choose_implementation,
    restore_implementations,
)
from regmax.nn.recording import record_attention


def measure(
    model: PreTrainedModel,
    teacher: PreTrainedModel | None,
    original: Implementations,
    real: dict[torch.nn.Module, list[Tensor]],
    batches: list[dict[str, Any]],
    advance: Callable[[str], None],
) -> tuple[dict[str, Tensor], float]:
    """The mean support of every head in the finished model, by layer, and the relative error of the outputs."""
    names = {module: name for name, module in model.named_modules()}
    kept = {module: iter(calls) for module, calls in real.items()}
    words: dict[str, Any] = dict.fromkeys((names[module] for module in real), 0.0)
    queries = dict(words)
    errors = []
    for batch in batches:
        if teacher is None:
            restore_implementations(original)
        wanted = _output(model if teacher is None else teacher, batch)
        choose_implementation(model, IMPLEMENTATION)
        with record_attention(model, modules=[names[module] for module in real]) as record:
            found = _output(model, batch)
        errors.append(float(relative_error(found, wanted, position_weight("", batch))))
        for module in real:
            for weights in record[names[module]]:
                counted = next(kept[module])
                words[names[module]] += (counts(weights) * counted).sum((0, 2)).cpu().double()
                queries[names[module]] += counted.sum((0, 2)).cpu().double()
        advance("measuring")
    return {name: words[name] / queries[name].clamp_min(1) for name in words}, sum(errors) / len(errors)


def _output(model: PreTrainedModel, batch: Batch) -> Tensor:
    out = model(**batch)
    found = out.get("logits") if "logits" in out else out.get("last_hidden_state")
    return next(x for x in out.values() if isinstance(x, Tensor)) if found is None else found
