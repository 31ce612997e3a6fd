"""The attention of recurrent sequence-to-sequence models: Luong et al. (2015) and Bahdanau et al. (2015).

One decoder state (batch, width), or the states of several steps (batch, steps, width), attend to the encoder's states
(batch, d, width). A decoder that makes one step at a time prepares the memory once: `prepare` projects it, and every
step then only scores and weighs. Feeding the result back to the decoder is left to the model.
"""

from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor, nn

from regmax.arrays import A, AnyArray, Array
from regmax.nn.mappings import HasMapping
from regmax.resolver import MappingLike, resolve

Score = Literal["dot", "general", "concat"]


class PreparedMemory(NamedTuple):
    """An encoder's states, projected once, for all steps of a decoder; made by `prepare` of an attention module.

    Example:
        >>> import torch, regmax
        >>> attend = regmax.nn.GlobalAttention(8, mapping="sparsemax")
        >>> memory = attend.prepare(torch.randn(2, 5, 8))
        >>> beam = memory.rows(torch.tensor([0, 0, 1, 1]))
        >>> attend(torch.randn(4, 8), beam)[1].shape
        torch.Size([4, 5])
    """

    keys: Tensor  # (batch, d, width): as the score needs them
    values: Tensor  # (batch, d, memory_size): they are summed by the weights
    mask: Tensor | None  # (batch, d): True = keep

    def rows(self, index: Tensor) -> "PreparedMemory":
        """The memory of some sequences of the batch, with repetitions, as beam search needs it."""
        mask = None if self.mask is None else self.mask[index]
        return PreparedMemory(self.keys[index], self.values[index], mask)


class _RecurrentAttention(HasMapping):
    """Scores of prepared keys, weights, weighted sums: the part that Luong's and Bahdanau's attention share."""

    if TYPE_CHECKING:  # torch's accepts and returns anything

        def __call__(
            self, query: Array[A], memory: AnyArray | PreparedMemory, mask: AnyArray | None = None
        ) -> tuple[A, A]: ...

    def prepare(
        self, memory: Tensor, mask: Tensor | None = None, *, values: Tensor | None = None
    ) -> PreparedMemory:
        """Project the memory, once for all steps of a decoder.

        Args:
            memory: (batch, d, memory_size).
            mask: (batch, d), True = keep.
            values: (batch, d, memory_size), summed by the weights; the memory if None.
        """
        _check_memory(memory, mask, values)
        return PreparedMemory(self._keys(memory), memory if values is None else values, mask)

    def _keys(self, memory: Tensor) -> Tensor:
        raise NotImplementedError

    def _scores(self, query: Tensor, keys: Tensor) -> Tensor:
        raise NotImplementedError

    def _attend(
        self, query: Tensor, memory: Tensor | PreparedMemory, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """For queries (batch, steps, width): the weighted sums of the values, the weights and the scores."""
        if not isinstance(memory, PreparedMemory):
            memory = self.prepare(memory, mask)
        elif mask is not None:
            raise ValueError(
                f"`{type(self).__name__}(query, memory, mask)` takes no mask with a prepared memory. "
                "Got both: give the mask to `prepare`."
            )
        x = self._scores(query, memory.keys)
        keep = None if memory.mask is None else memory.mask.unsqueeze(1)
        y = resolve(self.mapping)(x, mask=keep)
        return y @ memory.values, y, x


class GlobalAttention(_RecurrentAttention):
    """Luong's global attention: a score for every encoder state, weights, and the attentional state.

    With h the decoder's state and s_i the encoder's: x_i = score(h, s_i), y = Pi(x), c = sum_i y_i s_i, and the
    attentional state is tanh(W [c; h]). The scores are
    dot: <h, s_i>; general: <h, A s_i>; concat: <u, tanh(A [h; s_i] + b)>; all times `scale`.

    Args:
        query_size: the decoder states' width.
        memory_size: the encoder states' width; `query_size` if None.
        score: "dot", "general" or "concat".
        mapping: a name, a regularizer, a callable or a module of `regmax.nn`.
        scale: the factor of the scores.
        bias: whether the score "concat" has the bias b, which Luong's formula does not have.

    Example:
        >>> import torch, regmax
        >>> attend = regmax.nn.GlobalAttention(8, score="dot", mapping="sparsemax")
        >>> mask = torch.tensor([[True, True, True, True, False]])
        >>> state, y = attend(torch.randn(1, 8), torch.randn(1, 5, 8), mask)
        >>> state.shape, y.shape, y[0, 4].item()
        (torch.Size([1, 8]), torch.Size([1, 5]), 0.0)
    """

    def __init__(
        self,
        query_size: int,
        memory_size: int | None = None,
        *,
        score: Score = "general",
        mapping: MappingLike = "fusedmax",
        scale: float = 1.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        memory_size = query_size if memory_size is None else memory_size
        if score not in ("dot", "general", "concat"):
            raise ValueError(
                f"`GlobalAttention(..., score=...)` must be 'dot', 'general' or 'concat'. Got {score!r}."
            )
        if score == "dot" and memory_size != query_size:
            raise ValueError(
                f"`GlobalAttention(..., score='dot')` needs states of one width. Got {query_size} and {memory_size}."
            )
        self.score: Score = score
        self.scale = scale
        self.mapping = mapping
        if score == "general":
            self.key = nn.Linear(memory_size, query_size, bias=False)
        if score == "concat":
            self.additive = _AdditiveScore(query_size, memory_size, query_size, bias)
        self.combine = nn.Linear(memory_size + query_size, query_size, bias=False)

    def forward(
        self, query: Tensor, memory: Tensor | PreparedMemory, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The attentional state and the weights.

        Args:
            query: (batch, query_size), or (batch, steps, query_size).
            memory: (batch, d, memory_size), or the result of `prepare`.
            mask: (batch, d), True = keep; a prepared memory has its own.

        Returns:
            The attentional state, shaped like the query, and the weights, (batch, d) or (batch, steps, d).
        """
        return self.with_scores(query, memory, mask)[:2]

    def with_scores(
        self, query: Tensor, memory: Tensor | PreparedMemory, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The attentional state, the weights and the scores; the arguments are those of `forward`."""
        steps = _as_steps(query, memory)
        context, y, x = self._attend(steps, memory, mask)
        state = torch.tanh(self.combine(torch.cat([context, steps], -1)))
        return (state, y, x) if query.ndim == 3 else (state.squeeze(1), y.squeeze(1), x.squeeze(1))

    def _keys(self, memory: Tensor) -> Tensor:
        if self.score == "concat":
            return self.additive.memory(memory)
        keys = memory if self.score == "dot" else self.key(memory)
        return keys if self.scale == 1.0 else keys * self.scale

    def _scores(self, query: Tensor, keys: Tensor) -> Tensor:
        if self.score != "concat":
            return query @ keys.mT
        x = self.additive(query, keys)
        return x if self.scale == 1.0 else x * self.scale

    def extra_repr(self) -> str:
        """The score, and the mapping unless it is a module, which has its own repr."""
        scale = "" if self.scale == 1.0 else f", scale={self.scale:g}"
        return f"score={self.score!r}{_shown(self.mapping)}{scale}"


class AdditiveAttention(_RecurrentAttention):
    """Bahdanau's attention: x_i = <u, tanh(A h + B s_i + b)>, y = Pi(x), and the context sum_i y_i s_i.

    Args:
        query_size: the decoder states' width.
        memory_size: the encoder states' width.
        hidden_size: the width of the layer that compares them; `query_size` if None.
        mapping: a name, a regularizer, a callable or a module of `regmax.nn`.

    Example:
        >>> import torch, regmax
        >>> attend = regmax.nn.AdditiveAttention(8, 6, mapping=regmax.FusedLasso(lam=0.2))
        >>> context, y = attend(torch.randn(2, 3, 8), torch.randn(2, 5, 6))
        >>> context.shape, y.shape
        (torch.Size([2, 3, 6]), torch.Size([2, 3, 5]))
    """

    def __init__(
        self,
        query_size: int,
        memory_size: int,
        hidden_size: int | None = None,
        *,
        mapping: MappingLike = "fusedmax",
    ) -> None:
        super().__init__()
        self.mapping = mapping
        self.additive = _AdditiveScore(
            query_size, memory_size, query_size if hidden_size is None else hidden_size
        )

    def forward(
        self, query: Tensor, memory: Tensor | PreparedMemory, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The context and the weights; the arguments are those of `GlobalAttention.forward`."""
        context, y, _ = self._attend(_as_steps(query, memory), memory, mask)
        return (context, y) if query.ndim == 3 else (context.squeeze(1), y.squeeze(1))

    def _keys(self, memory: Tensor) -> Tensor:
        return self.additive.memory(memory)

    def _scores(self, query: Tensor, keys: Tensor) -> Tensor:
        return self.additive(query, keys)

    def extra_repr(self) -> str:
        """The mapping, unless it is a module, which has its own repr."""
        return _shown(self.mapping).removeprefix(", ")


class _AdditiveScore(nn.Module):
    """<u, tanh(A h + B s_i + b)>, which is also <u, tanh([A B] [h; s_i] + b)>; `memory` makes the keys B s_i."""

    def __init__(self, query_size: int, memory_size: int, hidden_size: int, bias: bool = True) -> None:
        super().__init__()
        self.query = nn.Linear(query_size, hidden_size, bias=bias)
        self.memory = nn.Linear(memory_size, hidden_size, bias=False)
        self.score = nn.Linear(hidden_size, 1, bias=False)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        pairs = self.query(query).unsqueeze(2) + keys.unsqueeze(1)  # (batch, steps, d, hidden)
        return self.score(torch.tanh(pairs)).squeeze(-1)


def _as_steps(query: Tensor, memory: Tensor | PreparedMemory) -> Tensor:
    """The query as (batch, steps, width)."""
    shape = (memory.values if isinstance(memory, PreparedMemory) else memory).shape
    if query.ndim not in (2, 3) or len(shape) != 3 or len(query) != shape[0]:
        raise ValueError(
            "Attention needs a query (batch, width) or (batch, steps, width) and a memory (batch, d, width). "
            f"Got {tuple(query.shape)} and {tuple(shape)}."
        )
    return query if query.ndim == 3 else query.unsqueeze(1)


def _check_memory(memory: Tensor, mask: Tensor | None, values: Tensor | None) -> None:
    if memory.ndim != 3:
        raise ValueError(f"Attention needs a memory (batch, d, width). Got {tuple(memory.shape)}.")
    if mask is not None and (mask.dtype != torch.bool or mask.shape != memory.shape[:2]):
        raise ValueError(
            f"`mask` must be boolean of shape {tuple(memory.shape[:2])}, True = keep. "
            f"Got {mask.dtype} of shape {tuple(mask.shape)}."
        )
    if values is not None and values.shape != memory.shape:
        raise ValueError(
            f"`prepare(memory, values=...)` must be shaped like the memory, {tuple(memory.shape)}. "
            f"Got {tuple(values.shape)}."
        )


def _shown(mapping: MappingLike) -> str:
    return "" if isinstance(mapping, nn.Module) else f", mapping={mapping!r}"
