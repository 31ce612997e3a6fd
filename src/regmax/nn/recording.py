"""The attention weights of a model, collected while it runs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from importlib import import_module
from math import prod
from typing import Any

import torch
from torch import Tensor

from regmax.sparse_attention.weights import SparseWeights

Take = Callable[[Tensor], None]
_SHOWN = 2_000_000  # weights that a notebook shows at most

# The active recordings. Attention layers ask `recorder` whether their weights are wanted.
_active: list["_Recording"] = []


class AttentionRecord(Mapping[str, Sequence[SparseWeights]]):
    """The result of `record_attention`: for each module name the weights of its calls, in order.

    Example:
        >>> import torch, regmax
        >>> attend = torch.nn.Sequential(regmax.nn.Sparsemax())
        >>> record = AttentionRecord({"layer": [SparseWeights.from_dense(torch.eye(3))]})
        >>> list(record), record.dense("layer").shape
        (['layer'], torch.Size([3, 3]))
    """

    def __init__(self, calls: Mapping[str, Sequence[SparseWeights]] | None = None) -> None:
        self._calls: dict[str, list[SparseWeights]] = {
            name: list(each) for name, each in (calls or {}).items()
        }

    def __getitem__(self, name: str) -> Sequence[SparseWeights]:
        if name not in self._calls:
            known = ", ".join(self._calls) or "nothing"
            raise KeyError(f"No weights were recorded for {name!r}, but for {known}.")
        return self._calls[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._calls)

    def __len__(self) -> int:
        return len(self._calls)

    def __repr__(self) -> str:
        return f"AttentionRecord({ {name: len(calls) for name, calls in self._calls.items()} })"

    def _repr_html_(self) -> str | None:
        """The explorer's page in a notebook, with numbers for tokens; None, which shows the repr, for too many weights.

        `regmax.plots.explore(record, tokens)` shows the words.
        """
        if not self._calls or sum(prod(calls[-1].shape) for calls in self._calls.values()) > _SHOWN:
            return None
        # By name: the pictures are a layer above this one, and are needed only in a notebook.
        html: str = import_module("regmax.plots").explore(self)._repr_html_()
        return html

    def dense(self, name: str, call: int = -1) -> Tensor:
        """The weights of one call as a dense tensor, in the module's shape, e.g. (batch, heads, queries, keys)."""
        return self[name][call].to_dense()

    def layers(self, call: int = -1, *, batch: int = 0) -> dict[str, Tensor]:
        """The weights of every module for one sequence of the batch, (heads, queries, keys)."""
        return {name: _of_sequence(self.dense(name, call), batch) for name in self}

    def add(self, name: str, weights: SparseWeights) -> None:
        """Append the weights of a call."""
        self._calls.setdefault(name, []).append(weights)


def _of_sequence(y: Tensor, batch: int) -> Tensor:
    """(batch, heads, queries, keys) or, averaged or without heads, (batch, queries, keys) or (batch, keys)."""
    one = y[batch]
    return one if one.ndim == 3 else one.reshape(1, *((1, *one.shape) if one.ndim == 1 else one.shape))


@contextmanager
def record_attention(
    model: torch.nn.Module, *, modules: Sequence[str] | str | None = None, max_calls: int | None = None
) -> Iterator[AttentionRecord]:
    """Collect the weights of every attention layer of a model while it runs, sparse, by module name.

    Layers of `regmax.nn`, torch's layers that `regmax.replace_attention` replaced, and Hugging Face models that attend
    through regmax give the weights of each head, before dropout. torch's and Hugging Face's own layers give what they
    return, if they return weights (`need_weights=True`, `attn_implementation="eager"`).

    Args:
        model: any module; nothing in it is changed, and its outputs are the same up to rounding.
        modules: names of the layers to record, or patterns such as `"encoder.*"`; None records all.
        max_calls: how many calls of each layer to record at most, the first ones.

    Returns:
        A mapping from module name to the `SparseWeights` of each call; `record.dense(name)` is dense.

    Example:
        >>> import torch, regmax
        >>> layer = torch.nn.TransformerEncoderLayer(16, 2, batch_first=True)
        >>> model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        >>> _ = regmax.replace_attention(model, "sparsemax")
        >>> with regmax.record_attention(model) as record:
        ...     _ = model(torch.randn(3, 5, 16))
        >>> list(record), record.dense("layers.0.self_attn").shape
        (['layers.0.self_attn', 'layers.1.self_attn'], torch.Size([3, 2, 5, 5]))
    """
    if max_calls is not None and (isinstance(max_calls, bool) or max_calls < 1):
        raise ValueError(f"`record_attention(..., max_calls=...)` must be at least 1. Got {max_calls}.")
    recording = _Recording(_chosen(model, modules), max_calls)
    with ExitStack() as stack:
        for module in recording.names:
            stack.callback(module.register_forward_hook(recording.hook).remove)
        _active.append(recording)
        stack.callback(_active.remove, recording)
        yield recording.record


def recorder(module: torch.nn.Module) -> Take | None:
    """The function to call with a module's weights, or None if they are not recorded."""
    if not _active:
        return None
    wanted = [recording for recording in _active if recording.wants(module)]
    if not wanted:
        return None

    def take(y: Tensor) -> None:
        for recording in wanted:
            recording.passed.add(module)
            recording.take(module, y)

    return take


class _Recording:
    def __init__(self, names: dict[torch.nn.Module, str], max_calls: int | None) -> None:
        self.names, self.max_calls = names, max_calls
        self.record = AttentionRecord()
        # Layers that pass their weights on. Other outputs, of these and enclosing layers, may only look like weights:
        # the position bias of T5 does.
        self.passed: set[torch.nn.Module] = set()
        self._last: Tensor | None = (
            None  # an enclosing module often returns the very weights of the inner one
        )

    def wants(self, module: torch.nn.Module) -> bool:
        name = self.names.get(module)
        if name is None:
            return False
        return self.max_calls is None or name not in self.record or len(self.record[name]) < self.max_calls

    def take(self, module: torch.nn.Module, y: Tensor) -> None:
        self.record.add(self.names[module], SparseWeights.from_dense(y))
        self._last = y

    def hook(self, module: torch.nn.Module, _: Any, output: Any) -> None:
        """Record weights that a module returns with its output, unless they are recorded already."""
        if any(part in self.passed for part in module.modules()):
            return
        y = _returned_weights(output)
        if y is not None and y is not self._last and not _asks(module) and self.wants(module):
            self.take(module, y)


def _asks(module: torch.nn.Module) -> bool:
    """Whether a module calls `recorder` itself, and so passes on the weights of each head."""
    return bool(getattr(module, "records_attention", False))


def _returned_weights(output: Any) -> Tensor | None:
    """The second part of a module's output, if it looks like weights: rows for the queries, at least 0."""
    if not isinstance(output, tuple) or len(output) < 2:
        return None
    first, y = output[:2]
    if not isinstance(first, Tensor) or not isinstance(y, Tensor) or not y.is_floating_point():
        return None
    if y.ndim < 2 or (y.ndim > 2 and y.shape[-2] not in first.shape):
        return None
    return y if bool((y >= 0).all()) else None


def _chosen(model: torch.nn.Module, modules: Sequence[str] | str | None) -> dict[torch.nn.Module, str]:
    """The attention layers to record, with their names."""
    found = {module: name for name, module in model.named_modules() if "Attention" in type(module).__name__}
    if not found:
        raise ValueError("`record_attention(model)` found no attention layer in the model.")
    if modules is None:
        return found
    patterns = (modules,) if isinstance(modules, str) else tuple(modules)
    chosen = {
        module: name for module, name in found.items() if any(fnmatchcase(name, each) for each in patterns)
    }
    if not chosen:
        raise ValueError(
            f"`record_attention(..., modules=...)` must name attention layers, {', '.join(found.values())}. "
            f"Got {', '.join(patterns)}."
        )
    return chosen
