"""The inputs: shapes, scores and masks, the same bits in every run."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

# Each kind of scores, and its name in tables. Masked cases have N(0, 1) scores.
SCORES = {
    "normal": "N(0, 1)",
    "peaked": "3 N(0, 1)",
    "attention": "attention scores",
    "flat": "flat scores, std .03",
    "padding": "N(0, 1), padding mask",
    "causal": "N(0, 1), causal mask",
}
MASKS = ("padding", "causal")

MILLION = 2**20
TINY = (64, 30)
_HEAD = 64  # the dimension of queries and keys for attention scores
_CORRELATION = 0.5  # of a query with its matching key


@dataclass(frozen=True)
class Case:
    """n rows of d scores of one kind."""

    scores: str
    n: int
    d: int

    @property
    def is_million(self) -> bool:
        """Whether this shape has about a million scores."""
        return self.n * self.d == MILLION


@dataclass(frozen=True)
class Tensors:
    """The scores of a case, laid out as attention does: (batch, queries, d)."""

    x: Tensor
    v: Tensor  # the direction of the backward pass
    keep: Tensor | None  # broadcasts to x

    @property
    def filled(self) -> Tensor:
        """The scores with -inf at deleted positions, as softmax needs them."""
        return self.x if self.keep is None else self.x.masked_fill(~self.keep, -math.inf)


def full_cases() -> list[Case]:
    """Every kind of scores in every shape."""
    shapes = [TINY, *((MILLION // d, d) for d in (32, 64, 128, 512, 2048)), (2**16, 64), (2**11, 2048)]
    return [Case(scores, n, d) for scores in SCORES for n, d in shapes]


def quick_cases() -> list[Case]:
    """The tiny case and every length of about a million scores; masks and flat scores in two lengths only."""
    shapes = [(MILLION // d, d) for d in (32, 64, 128, 512, 2048)]
    few = [(MILLION // d, d) for d in (64, 512)]
    main = [Case(scores, n, d) for scores in ("normal", "attention") for n, d in shapes]
    return [
        Case("normal", *TINY),
        *main,
        *(Case(scores, n, d) for scores in ("flat", "padding") for n, d in few),
    ]


def tensors(case: Case) -> Tensors:
    """The tensors of a case.

    Example:
        >>> tensors(Case("padding", 64, 30)).x.shape
        torch.Size([4, 16, 30])
    """
    generator = torch.Generator().manual_seed(case.n + case.d)
    batch = _batch(case)
    shape = (batch, case.n // batch, case.d)
    if case.scores == "attention":
        x = _attention(*shape, generator)
    else:
        x = torch.randn(shape, generator=generator) * {"peaked": 3.0, "flat": 0.03}.get(case.scores, 1.0)
    return Tensors(x, torch.randn(shape, generator=generator), _keep(case.scores, shape, generator))


def _batch(case: Case) -> int:
    """As many queries as keys if there are enough rows; at least four sequences, so that their lengths differ."""
    queries = 2 ** int(math.log2(min(case.d, case.n // 4)))
    return case.n // queries


def _attention(batch: int, queries: int, d: int, generator: torch.Generator) -> Tensor:
    """q·k / sqrt(64): each query is correlated with one key, whose score is about 4; the others are N(0, 1)."""
    k = torch.randn(batch, d, _HEAD, generator=generator)
    sought = torch.randint(d, (batch, queries, 1), generator=generator).expand(-1, -1, _HEAD)
    noise = torch.randn(batch, queries, _HEAD, generator=generator)
    q = _CORRELATION * k.gather(1, sought) + math.sqrt(1 - _CORRELATION**2) * noise
    return (q @ k.mT / math.sqrt(_HEAD)).contiguous()


def _keep(scores: str, shape: tuple[int, int, int], generator: torch.Generator) -> Tensor | None:
    """True keeps a score; the shape is that of models: one row per sequence, or one per query."""
    batch, queries, d = shape
    positions = torch.arange(d)
    if scores == "padding":
        lengths = torch.randint(d // 2, d + 1, (batch, 1, 1), generator=generator)
        return positions < lengths
    if scores == "causal":
        # If there are fewer queries than keys, they are spaced evenly among them.
        last = (torch.arange(1, queries + 1) * d // queries - 1)[:, None]
        return positions <= last
    return None
