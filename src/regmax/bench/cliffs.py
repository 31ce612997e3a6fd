"""Cliffs: mappings × strengths × kinds of rows × lengths, to find the inputs on which time jumps.

Few turns per cell, in CPU time of one thread: a cliff is a factor of 5 or more, which noise does not hide.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import regmax
from regmax.bench.attention_cases import inputs
from regmax.bench.attention_uses import gradients
from regmax.bench.contestants import BOTH, FORWARD, REFERENCE
from regmax.bench.rows import KINDS, scores
from regmax.resolver import function_of
from regmax.timing import CPU, Call, in_turns, race

ROWS, ATTENTION = "rows", "attention"
# Ratios are counted above these; pictures change colour at them.
STEPS = {ROWS: (1.0, 2.0, 5.0, 12.0), ATTENTION: (0.5, 1.0, 2.0)}


@dataclass(frozen=True)
class Setting:
    """A mapping with one of its strengths; the value None stands for 1/d."""

    mapping: str
    parameter: str = ""
    value: float | None = None
    is_learned: bool = False

    @property
    def label(self) -> str:
        """The setting in a table.

        Example:
            >>> Setting("oscarmax", "lam").label, Setting("entmax", "alpha", 1.5, is_learned=True).label
            ('oscarmax, lam = 1/d', 'entmax, alpha = 1.5, learned')
        """
        if not self.parameter:
            return self.mapping
        value = "1/d" if self.value is None else f"{self.value:g}"
        return f"{self.mapping}, {self.parameter} = {value}" + (", learned" if self.is_learned else "")

    def prepare(self, d: int) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
        """The mapping for rows of d scores, and the tensors that it learns."""
        function = function_of(self.mapping)
        if not self.parameter:
            return function, ()
        value = 1 / d if self.value is None else self.value
        if not self.is_learned:
            return partial(function, **{self.parameter: value}), ()
        strength = torch.tensor(value, requires_grad=True)
        return partial(function, **{self.parameter: strength}), (strength,)


SETTINGS = (
    Setting("sparsemax"),
    *(Setting("sqpnormmax", "p", p) for p in (1.01, 1.1, 1.3, 1.5, 1.9)),
    Setting("sqpnormmax", "p", 1.5, is_learned=True),
    *(Setting("entmax", "alpha", alpha) for alpha in (1.05, 1.25, 1.5, 1.9)),
    Setting("entmax", "alpha", 1.5, is_learned=True),
    *(Setting("fusedmax", "lam", lam) for lam in (0.01, 0.1, 1.0, 10.0)),
    Setting("fusedmax", "lam", 0.1, is_learned=True),
    Setting("fusedmax", "gamma", 1.0, is_learned=True),
    *(Setting("oscarmax", "lam", lam) for lam in (None, 0.01)),
    Setting("oscarmax", "lam", is_learned=True),
)


@dataclass(frozen=True)
class Cell:
    """The time of a setting on one kind of rows relative to softmax, or to softmax attention; one thread."""

    of: str  # ROWS or ATTENTION
    run: str
    setting: str
    mapping: str
    kind: str
    d: int  # scores per row: in attention, keys
    ratio: float
    microseconds: float

    def __str__(self) -> str:
        return f"{self.setting}, {self.kind}, d = {self.d:,}"


def row_cases(quick: bool = False) -> list[tuple[str, int]]:
    """The kinds of rows and their lengths; a sample of the lengths if `quick`."""
    return list(product(KINDS, (64, 512) if quick else (16, 64, 256, 512, 1024, 4096)))


def attention_cases(quick: bool = False) -> list[tuple[str, int]]:
    """The kinds of scores and the numbers of keys; a sample of both if `quick`."""
    kinds = [kind for kind in KINDS if kind != "harmonic"]
    return list(product(("attention", "flat", "ramp"), (256,)) if quick else product(kinds, (256, 1024)))


def row_cells(
    kind: str, d: int, settings: Sequence[Setting] = SETTINGS, *, total: int = 2**18, seconds: float = 0.02
) -> Iterator[Cell]:
    """Forward + backward of every setting and of softmax on the same rows, in turns."""
    x = scores(kind, max(1, total // d), d).requires_grad_()
    v = torch.randn(x.shape, generator=torch.Generator().manual_seed(d))
    calls: dict[Setting | str, Call] = {
        REFERENCE: Call(partial(_train, partial(torch.softmax, dim=-1), (), x, v))
    }
    calls |= {setting: Call(partial(_train, *setting.prepare(d), x, v)) for setting in settings}
    times = race(calls, seconds=seconds, clock=CPU)
    softmax = times[1, REFERENCE].taken
    for setting in settings:
        own = times[1, setting].taken
        where = (ROWS, BOTH, setting.label, setting.mapping, kind, d)
        yield Cell(*where, float(np.nanmedian(own / softmax)), float(np.nanmedian(own)) / 1e3)


def _train(function: Callable[[Tensor], Tensor], learned: tuple[Tensor, ...], x: Tensor, v: Tensor) -> None:
    torch.autograd.grad(function(x), (x, *learned), v)


def attention_cells(
    kind: str, n: int, settings: Sequence[Setting] = SETTINGS, *, heads: int = 4, rounds: int = 3
) -> Iterator[Cell]:
    """Forward, and forward + backward, of attention with every setting and with softmax, in turns."""
    tensors = inputs(n, kind, heads)
    q, k, v = (tensor.detach() for tensor in tensors)
    softmax: Callable[..., Tensor] = scaled_dot_product_attention
    forward: dict[Setting | str, Callable[[], object]] = {REFERENCE: partial(softmax, q, k, v)}
    both: dict[Setting | str, Callable[[], object]] = {REFERENCE: partial(gradients, softmax, tensors)}
    for setting in settings:
        mapping, learned = setting.prepare(n)
        attend = partial(regmax.attention, mapping=mapping)
        both[setting] = partial(gradients, attend, tensors, learned)
        if not setting.is_learned:  # it takes part in training only
            forward[setting] = partial(attend, q, k, v)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for run, calls in ((FORWARD, forward), (BOTH, both)):
            times = in_turns(calls, rounds=rounds, clock=CPU)
            reference = times.pop(REFERENCE)
            for key, own in times.items():
                assert isinstance(key, Setting)
                where = (ATTENTION, run, key.label, key.mapping, kind, n)
                yield Cell(*where, float(np.median(own / reference)), float(np.median(own)) / 1e3)
    finally:
        torch.set_num_threads(before)
