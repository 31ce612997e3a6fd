"""Measure what each head would lose under other mappings: errors and supports for a grid of strengths.

A layer that calibrates computes softmax, so that every layer sees the inputs it was trained with, and beside it the
output of each head at every point of the grid. The sums over the batches give, per head and point,

    error = sum |o - o_softmax|^2 / sum |o_softmax|^2        words = mean number of nonzero weights of a query.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import torch
from torch import Tensor

from regmax.integrations.transformers.interface import Attend
from regmax.mappings import NamedMapping
from regmax.regularizers import NegativeEntropy
from regmax.resolver import Resolved
from regmax.sparse_attention import SparseWeights, attention

# Scores of trained models range over about 20: below gamma = 1/2 a row has one or two words, above 16 nearly all.
_GAMMAS = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 11.0, 16.0)
_OWN: dict[str, tuple[float, ...]] = {
    "alpha": (1.25, 1.5, 1.75, 2.0),
    "lam": (0.02, 0.05, 0.1, 0.2),
    "p": (1.25, 1.5, 2.0),
}

Strengths = Mapping[str, float]


def grid(
    row: NamedMapping, fixed: Strengths, given: Mapping[str, Sequence[float]]
) -> tuple[dict[str, float], ...]:
    """The strengths to try: those that are fixed, those that are given, and defaults for the others.

    Example:
        >>> from regmax.mappings import named
        >>> grid(named("fusedmax"), {"lam": 0.1}, {"gamma": [1.0, 2.0]})
        ({'gamma': 1.0, 'lam': 0.1}, {'gamma': 2.0, 'lam': 0.1})
    """
    row.check({name: each for name, values in given.items() for each in values})
    values = {
        name: (fixed[name],) if name in fixed else given.get(name, _GAMMAS if name == "gamma" else _OWN[name])
        for name in row.strengths
    }
    points = tuple(dict(zip(values, point, strict=True)) for point in product(*values.values()))
    for point in points:
        row.check(point)
    return points


@dataclass
class LayerSums:
    """The sums of one layer: `error` and `words` are (points, heads), the others (heads,), all float64."""

    error: Tensor
    words: Tensor
    norm: Tensor
    words_before: Tensor
    queries: Tensor

    def errors(self) -> Tensor:
        """The relative squared error at each point, for each head."""
        return self.error / self.norm.clamp_min(torch.finfo(torch.float64).tiny)

    def supports(self) -> Tensor:
        """The mean number of words at each point, for each head."""
        return self.words / self.queries.clamp_min(1)


@dataclass(frozen=True, eq=False)
class Calibrate(Attend):
    """Attention with softmax that adds up the errors of every point of the grid."""

    row: NamedMapping | None = None
    points: tuple[dict[str, float], ...] = ()
    sums: dict[torch.nn.Module, LayerSums] = field(default_factory=dict)
    batch: dict[str, Any] = field(default_factory=dict)  # the inputs of the model
    real: dict[torch.nn.Module, list[Tensor]] = field(default_factory=dict)  # the queries that count, by call

    def attend(self, module: torch.nn.Module, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        """Softmax's output, and as requested its weights."""
        assert self.row is not None
        wanted = options.pop("return_weights")
        options["dropout_p"] = 0.0
        out, weights = attention(
            q, k, v, mapping=Resolved(NegativeEntropy()), return_weights="sparse", **options
        )
        real = real_queries(out, options.get("mask"), k.shape[2], self.batch)
        self.real.setdefault(module, []).append(real)
        sums = self.sums.setdefault(module, _zeros(len(self.points), q.shape[1]))
        sums.norm += _per_head(out.double().square().sum(-1), real)
        sums.words_before += _per_head(counts(weights), real)
        sums.queries += real.sum((0, 2)).expand(q.shape[1]).cpu().double()
        for i, point in enumerate(self.points):
            mapping = Resolved(self.row.made(point), point["gamma"])
            other, found = attention(q, k, v, mapping=mapping, return_weights="sparse", **options)
            sums.error[i] += _per_head((other.double() - out.double()).square().sum(-1), real)
            sums.words[i] += _per_head(counts(found), real)
        return (out, weights.to_dense()) if wanted else out


def counts(weights: SparseWeights) -> Tensor:
    """The number of nonzero weights of each query, (batch, heads, queries)."""
    return weights.starts.diff().reshape(weights.shape[:-1])


def real_queries(out: Tensor, mask: Tensor | None, keys: int, batch: Mapping[str, Any]) -> Tensor:
    """Which queries count, (batch, 1, queries): not those of padding.

    In self-attention a padded position masks its own key. In cross-attention the queries are the decoder's.
    """
    queries = out.shape[2]
    decoder = batch.get("decoder_attention_mask")
    if mask is not None and queries == keys:
        whole = mask[:, :1].expand(len(out), 1, queries, keys)
        return whole.diagonal(dim1=-2, dim2=-1)
    if isinstance(decoder, Tensor) and decoder.shape == (len(out), queries):
        return decoder.bool()[:, None]
    return torch.ones(len(out), 1, queries, dtype=torch.bool, device=out.device)


def _per_head(values: Tensor, real: Tensor) -> Tensor:
    return (values.double() * real).sum((0, 2)).cpu()


def _zeros(points: int, heads: int) -> LayerSums:
    zeros = torch.zeros(points, heads, dtype=torch.float64)
    return LayerSums(zeros, zeros.clone(), zeros[0].clone(), zeros[0].clone(), zeros[0].clone())


def choose(sums: LayerSums, tolerance: float) -> list[int | None]:
    """For each head the point with the fewest words whose error is within the tolerance; None if there is none.

    A head also keeps softmax if no such point drops a word.
    """
    words, errors = sums.supports(), sums.errors()
    before = sums.words_before / sums.queries.clamp_min(1)
    allowed = (errors <= tolerance) & (words < before)
    fewest, point = torch.where(allowed, words, torch.inf).min(0)
    return [int(i) if n < torch.inf else None for n, i in zip(fewest.tolist(), point.tolist(), strict=True)]
