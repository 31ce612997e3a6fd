"""The attention of recurrent sequence-to-sequence models: Luong et al. (2015) and Bahdanau et al. (2015).

One decoder state (batch, width), or the states of several steps (batch, steps, width), attend to the encoder's states
(batch, d, width). Feeding the result back to the decoder is the model's business.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from regmax.nn.weighting import Mapping, as_function

Score = Literal["dot", "general", "concat"]


class GlobalAttention(nn.Module):
    """Luong's global attention: a score for every encoder state, weights, and the attentional state.

    With h the decoder's state and s_i the encoder's: x_i = score(h, s_i), y = Pi(x), c = sum_i y_i s_i, and the
    attentional state is tanh(W [c; h]). The scores are
    dot: <h, s_i>; general: <h, A s_i>; concat: <u, tanh(A [h; s_i])>.

    Args:
        query_size: the decoder states' width.
        memory_size: the encoder states' width; `query_size` if None.
        score: "dot", "general" or "concat".
        mapping: a name, a regularizer, a callable or a module of `regmax.nn`.

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
        mapping: Mapping = "fusedmax",
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
        as_function(mapping)
        self.score: Score = score
        self.mapping = mapping
        if score == "general":
            self.key = nn.Linear(memory_size, query_size, bias=False)
        if score == "concat":
            self.additive = _AdditiveScore(query_size, memory_size, query_size)
        self.combine = nn.Linear(memory_size + query_size, query_size, bias=False)

    def forward(self, query: Tensor, memory: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The attentional state and the weights.

        Args:
            query: (batch, query_size), or (batch, steps, query_size).
            memory: (batch, d, memory_size).
            mask: (batch, d), True where there is a word.

        Returns:
            The attentional state, shaped like the query, and the weights, (batch, d) or (batch, steps, d).
        """
        _check(query, memory, mask)
        steps = query if query.ndim == 3 else query.unsqueeze(1)
        context, y = _attend(self._scores(steps, memory), memory, mask, self.mapping)
        state = torch.tanh(self.combine(torch.cat([context, steps], -1)))
        return (state, y) if query.ndim == 3 else (state.squeeze(1), y.squeeze(1))

    def _scores(self, query: Tensor, memory: Tensor) -> Tensor:
        if self.score == "concat":
            return self.additive(query, memory)
        return query @ (memory if self.score == "dot" else self.key(memory)).mT

    def extra_repr(self) -> str:
        """The score, and the mapping unless it is a module, which shows itself."""
        return f"score={self.score!r}{_shown(self.mapping)}"


class AdditiveAttention(nn.Module):
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
        mapping: Mapping = "fusedmax",
    ) -> None:
        super().__init__()
        as_function(mapping)
        self.mapping = mapping
        self.additive = _AdditiveScore(
            query_size, memory_size, query_size if hidden_size is None else hidden_size
        )

    def forward(self, query: Tensor, memory: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The context and the weights; the arguments are those of `GlobalAttention.forward`."""
        _check(query, memory, mask)
        steps = query if query.ndim == 3 else query.unsqueeze(1)
        context, y = _attend(self.additive(steps, memory), memory, mask, self.mapping)
        return (context, y) if query.ndim == 3 else (context.squeeze(1), y.squeeze(1))

    def extra_repr(self) -> str:
        """The mapping, unless it is a module, which shows itself."""
        return _shown(self.mapping).removeprefix(", ")


class _AdditiveScore(nn.Module):
    """<u, tanh(A h + B s_i + b)>, which is also <u, tanh([A B] [h; s_i] + b)>."""

    def __init__(self, query_size: int, memory_size: int, hidden_size: int) -> None:
        super().__init__()
        self.query = nn.Linear(query_size, hidden_size)
        self.memory = nn.Linear(memory_size, hidden_size, bias=False)
        self.score = nn.Linear(hidden_size, 1, bias=False)

    def forward(self, query: Tensor, memory: Tensor) -> Tensor:
        pairs = self.query(query).unsqueeze(2) + self.memory(memory).unsqueeze(1)  # (batch, steps, d, hidden)
        return self.score(torch.tanh(pairs)).squeeze(-1)


def _attend(x: Tensor, memory: Tensor, mask: Tensor | None, mapping: Mapping) -> tuple[Tensor, Tensor]:
    """The weighted sums of the memory, and the weights."""
    y = as_function(mapping)(x, -1, mask=None if mask is None else mask.unsqueeze(1))
    return y @ memory, y


def _check(query: Tensor, memory: Tensor, mask: Tensor | None) -> None:
    if query.ndim not in (2, 3) or memory.ndim != 3 or len(query) != len(memory):
        raise ValueError(
            "Attention needs a query (batch, width) or (batch, steps, width) and a memory (batch, d, width). "
            f"Got {tuple(query.shape)} and {tuple(memory.shape)}."
        )
    if mask is not None and (mask.dtype != torch.bool or mask.shape != memory.shape[:2]):
        raise ValueError(
            f"`mask` must be boolean of shape {tuple(memory.shape[:2])}, True = keep. "
            f"Got {mask.dtype} of shape {tuple(mask.shape)}."
        )


def _shown(mapping: Mapping) -> str:
    return "" if isinstance(mapping, nn.Module) else f", mapping={mapping!r}"
