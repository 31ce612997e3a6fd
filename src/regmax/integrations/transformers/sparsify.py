"""A model that was trained with softmax, made sparse without training: `sparsify_attention`."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.utils import logging

from regmax.integrations.transformers.allocation import allocate
from regmax.integrations.transformers.calibration import Calibrate, LayerSums, choose, grid
from regmax.integrations.transformers.checking import (
    NO_CHOICE,
    chooses,
    evaluated,
    observed,
    raise_for_others,
)
from regmax.integrations.transformers.distillation import Batch, Distillation, train
from regmax.integrations.transformers.heads import IMPLEMENTATION, HeadMappings
from regmax.integrations.transformers.implementations import (
    CALIBRATING,
    as_before_on_failure,
    choose_implementation,
    copy_with,
    softmax_implementations,
)
from regmax.integrations.transformers.interface import ATTRIBUTE, Attend, mask
from regmax.integrations.transformers.layers import registered
from regmax.integrations.transformers.measuring import measure
from regmax.integrations.transformers.registry import register
from regmax.integrations.transformers.report import HeadReport, SparsifyReport
from regmax.integrations.transformers.tuning import Found, Tuning
from regmax.integrations.transformers.tuning import tune as tune_gammas
from regmax.mappings import parse
from regmax.resolver import resolve

_CALL = "sparsify_attention(model, batches"

Metric = Callable[[PreTrainedModel], float]


def sparsify_attention(
    model: PreTrainedModel,
    batches: Iterable[Batch],
    *,
    mapping: str = "entmax",
    tolerance: float = 0.1,
    support: float | None = None,
    strengths: Mapping[str, Sequence[float]] | None = None,
    metric: Metric | None = None,
    tune: Tuning | None = None,
    distill: Distillation | None = None,
) -> SparsifyReport:
    """Give every head of a softmax-trained model the sparsest mapping that hardly changes its output; in place.

    Each head gets the strengths (gamma, and alpha, lam or p) that attend to the fewest words while the relative squared
    error of its output, over the batches, is at most `tolerance`. A head for which no strengths are within it keeps
    softmax. The weights of the model are not changed, except by distillation.

    Afterwards the model's `attn_implementation` is `"sparsified"`. `save_pretrained` and `from_pretrained` of this
    module keep the strengths, and `regmax.record_attention` records the weights. If the call fails or is interrupted,
    the model is as before.

    Args:
        model: an encoder, a decoder or both, whose `attn_implementation` can be chosen.
        batches: a few batches of typical inputs, keyword arguments of the model: 100 sentences are enough.
        mapping: the name of a mapping with zeros; a strength in it is fixed, e.g. `"fusedmax,lam=0.1"`.
        tolerance: the largest relative squared error of a head's output.
        support: the mean number of words to attend to, instead of a tolerance: words then go to the heads in which
            they reduce the errors most.
        strengths: the values to try, by name, instead of the defaults.
        metric: a function of the model, evaluated before and after, for the report.
        tune: gammas of all heads are tuned together against the original, at the same mean number of words. Errors of
            single heads may then exceed the tolerance.
        distill: a short training of the weights against the original afterwards.

    Returns:
        A report: strengths, support and error of each head; `print` shows a table.

    Example:
        >>> import torch, transformers, regmax
        >>> sparse = regmax.integrations.transformers
        >>> _ = torch.manual_seed(0)
        >>> config = transformers.GPT2Config(n_layer=2, n_embd=8, n_head=2, vocab_size=11, initializer_range=0.7)
        >>> model = transformers.AutoModel.from_config(config)
        >>> batches = [{"input_ids": torch.randint(11, (4, 12))}]
        >>> report = sparse.sparsify_attention(model, batches, mapping="sparsemax", tolerance=0.2)
        >>> report.words < report.words_before, model.config._attn_implementation
        (True, 'sparsified')
    """
    began = time.perf_counter()
    row, fixed = parse(_checked_name(mapping))
    _check(model, row.sparse, mapping, tolerance, support)
    points = grid(row, fixed, strengths or {})
    listed = [_on_device(batch, model) for batch in batches]
    if not listed:
        raise ValueError(f"`{_CALL})` needs at least one batch. Got none.")
    steps = len(listed) * 2 + sum(plan.steps for plan in (tune, distill) if plan)
    with as_before_on_failure(model) as undo, evaluated(model), _progress(steps) as advance:
        before = None if metric is None else float(metric(model))
        original = softmax_implementations(model)
        sums, real = _calibrate(model, row, points, listed, advance)
        chosen = _chosen(sums, tolerance, support)
        found = _attached(sums, chosen, points, row.name)
        register(IMPLEMENTATION, "softmax")
        tuning: tuple[float, ...] = ()
        losses: tuple[float, ...] = ()
        teacher = None
        if tune is not None or distill is not None:
            teacher = copy_with(model, original)
            choose_implementation(model, IMPLEMENTATION)
        if tune is not None:
            found, tuning = tune_gammas(model, teacher, tune, sums, points, advance)
        if distill is not None:
            assert teacher is not None
            undo.append(partial(_restore_weights, model, teacher))
            losses = train(model, teacher, distill, advance)
        choose_implementation(model, IMPLEMENTATION)
        words, output_error = measure(model, teacher, original, real, listed, advance)
        after = None if metric is None else float(metric(model))
    reports = tuple(_head_reports(model, sums, found, words))
    return SparsifyReport(
        mapping=mapping,
        tolerance=tolerance if support is None else max(head.error for head in reports),
        heads=reports,
        output_error=output_error,
        before=before,
        after=after,
        tuning=tuning,
        losses=losses,
        seconds=time.perf_counter() - began,
    )


def _checked_name(mapping: Any) -> str:
    if not isinstance(mapping, str):
        raise TypeError(
            f"`{_CALL}, mapping=...)` must be a mapping's name, with or without strengths. "
            f"Got {type(mapping).__name__}."
        )
    return mapping


def _check(
    model: PreTrainedModel, is_sparse: bool, mapping: str, tolerance: float, support: float | None
) -> None:
    if not isinstance(model, PreTrainedModel):
        raise TypeError(f"`{_CALL})` needs a model of transformers. Got {type(model).__name__}.")
    if not is_sparse:
        raise ValueError(f"`{_CALL}, mapping=...)` must be a mapping with zeros. Got {mapping!r}.")
    if not tolerance > 0:
        raise ValueError(f"`{_CALL}, tolerance=...)` must be positive. Got {tolerance}.")
    if support is not None and not support >= 1:
        raise ValueError(f"`{_CALL}, support=...)` must be at least 1 word. Got {support}.")
    if not chooses(model):
        raise RuntimeError(f"`{_CALL})`: {type(model).__name__} does not use regmax. {NO_CHOICE}")
    attend = registered(model.config._attn_implementation)
    if attend is not None and attend.name != IMPLEMENTATION and not resolve(attend.mapping).is_softmax:
        raise ValueError(
            f"`{_CALL})` needs a model with softmax. Got attn_implementation={attend.name!r}: set the one with which "
            "the model was trained."
        )


def _on_device(batch: Batch, model: PreTrainedModel) -> dict[str, Any]:
    if not isinstance(batch, Mapping):
        raise TypeError(
            f"`{_CALL})` needs batches of keyword arguments, as a tokenizer returns them. "
            f"Got {type(batch).__name__}."
        )
    return {name: x.to(model.device) if isinstance(x, Tensor) else x for name, x in batch.items()}


def _calibrate(
    model: PreTrainedModel,
    row: Any,
    points: tuple[dict[str, float], ...],
    batches: list[dict[str, Any]],
    advance: Callable[[str], None],
) -> tuple[dict[torch.nn.Module, LayerSums], dict[torch.nn.Module, list[Tensor]]]:
    """Run the batches with softmax, and measure every point of the grid in every layer."""
    attend = Calibrate("softmax", CALIBRATING, row, points)
    AttentionInterface.register(CALIBRATING, attend)
    AttentionMaskInterface.register(CALIBRATING, mask)
    ran: set[torch.nn.Module] = set()
    try:
        choose_implementation(model, CALIBRATING)
        with observed(model, ran):
            for batch in batches:
                attend.batch.clear()
                attend.batch.update(batch)
                model(**batch)
                advance("calibrating")
    finally:  # the registry must not keep the layers
        AttentionInterface.register(CALIBRATING, Attend("softmax", CALIBRATING))
    names = {module: name for name, module in model.named_modules()}
    raise_for_others(
        f"{_CALL})", model, {names[module] for module in ran}, {names[module] for module in attend.sums}
    )
    return attend.sums, attend.real


def _chosen(
    sums: dict[torch.nn.Module, LayerSums], tolerance: float, support: float | None
) -> dict[torch.nn.Module, list[int | None]]:
    """The points of every head: within the tolerance, or with the smallest errors for a number of words."""
    if support is None:
        return {module: choose(each, tolerance) for module, each in sums.items()}
    return dict(zip(sums, allocate(list(sums.values()), support), strict=True))


def _attached(
    sums: dict[torch.nn.Module, LayerSums],
    chosen: dict[torch.nn.Module, list[int | None]],
    points: tuple[dict[str, float], ...],
    mapping: str,
) -> Found:
    """Give the layers the strengths that were chosen; returns them, with their errors."""
    found: Found = {}
    for module, heads in chosen.items():
        errors = sums[module].errors()
        found[module] = (
            [None if i is None else points[i] for i in heads],
            [0.0 if i is None else float(errors[i, head]) for head, i in enumerate(heads)],
        )
        module._modules.pop(ATTRIBUTE, None)
        own = HeadMappings(mapping, found[module][0])
        module.add_module(ATTRIBUTE, own.to(next(module.parameters()).device))
    return found


def _restore_weights(model: PreTrainedModel, teacher: PreTrainedModel) -> None:
    model.load_state_dict(teacher.state_dict())
    model.zero_grad()


def _head_reports(
    model: PreTrainedModel,
    sums: dict[torch.nn.Module, LayerSums],
    found: Found,
    words: dict[str, Tensor],
) -> Iterator[HeadReport]:
    names = {module: name for name, module in model.named_modules()}
    for module, (strengths, errors) in found.items():
        each, name = sums[module], names[module]
        before = each.words_before / each.queries.clamp_min(1)
        for head, (own, error) in enumerate(zip(strengths, errors, strict=True)):
            yield HeadReport(name, head, own, float(words[name][head]), float(before[head]), error)


@contextmanager
def _progress(steps: int) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal, which `transformers.utils.logging.disable_progress_bar` switches off."""
    with logging.tqdm(total=steps, desc="sparsify", disable=None) as bar:

        def advance(doing: str) -> None:
            bar.set_postfix_str(doing, refresh=False)
            bar.update()

        yield advance
