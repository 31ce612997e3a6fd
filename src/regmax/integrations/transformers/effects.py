"""What a change of a head's output does to the output of the model, to first order.

If the output of head h changes by d_h, the output y of the model changes by the sum of J_h d_h, with J_h the Jacobian
at softmax. For random directions r of independent standard normal entries,

    mean over r of <r, sum_h J_h d_h>^2 = |sum_h J_h d_h|^2,        <r, J_h d_h> = <J_h^T r, d_h>,

and one backward pass from r gives J_h^T r for the heads of all layers. So the products <J_h^T r, d_h>, for a few
directions, are all that `allocation.py` needs to know of any combination of changes. Entries of r are independent for
the samples of a batch, too: keeping the products of each sample apart makes the mean more precise.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from regmax.integrations.transformers.calibration import Calibrate, Call
from regmax.integrations.transformers.distillation import Batch, position_weight

PROBES = 8  # directions for each batch

Output = Callable[[Any, Batch], Tensor]


def model_output(outputs: Mapping[str, Any]) -> Tensor:
    """Logits if the model has some, else the last hidden state, else the first tensor."""
    for name in ("logits", "last_hidden_state"):
        if isinstance(found := outputs.get(name), Tensor):
            return found
    return next(x for x in outputs.values() if isinstance(x, Tensor))


def run(model: Any, batch: Batch, attend: Calibrate, seed: int = 0) -> None:
    """Calibrate on one batch without effects."""
    attend.begin(batch)
    model(**batch)
    attend.measure()


def run_with_effects(
    model: Any, batch: Batch, attend: Calibrate, output: Output | None = None, seed: int = 0
) -> None:
    """Calibrate on one batch, with the effects on `output`, by default on `model_output` without padding."""
    attend.begin(batch)
    with torch.enable_grad():
        outputs = model(**batch)
        y = _real_output(outputs, batch) if output is None else output(outputs, batch)
    if not attend.calls:  # a model that ignores its implementation, for which `sparsify_attention` raises
        return
    if not y.requires_grad:
        raise ValueError(
            "`sparsify_attention(model, batches, output=...)` must depend on the model's attention. Got a tensor "
            "without gradient."
        )
    attend.measure(directions(y, attend.calls, seed), _samples(y, attend.calls))


def directions(y: Tensor, calls: Sequence[Call], seed: int) -> list[Tensor]:
    """J^T r of every call, (batch, heads, queries, width, probes); r is drawn from the seed."""
    generator = torch.Generator().manual_seed(seed)
    changes = [call.change for call in calls]
    drawn = []
    for left in reversed(range(PROBES)):
        r = torch.randn(y.shape, generator=generator).to(y)
        drawn.append(torch.autograd.grad(y, changes, r, retain_graph=left > 0, allow_unused=True))
    zeros = [torch.zeros_like(change) for change in changes]
    return [
        torch.stack([zeros[i] if found[i] is None else found[i] for found in drawn], -1)
        for i in range(len(changes))
    ]


def _samples(y: Tensor, calls: Sequence[Call]) -> int:
    """The samples that every layer tells apart: its rows are theirs, or windows of theirs."""
    samples = len(y) if y.ndim else 1
    return samples if all(len(call.out) % samples == 0 for call in calls) else 1


def _real_output(outputs: Mapping[str, Any], batch: Batch) -> Tensor:
    y = model_output(outputs)
    weight = position_weight("", batch)
    return y if weight is None or weight.shape != y.shape[:-1] else y * weight.unsqueeze(-1).to(y.dtype)
