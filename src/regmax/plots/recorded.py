"""The explorer's page of weights that `regmax.record_attention` recorded."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regmax.plots.examples import Example, Examples, View
from regmax.plots.figures import array
from regmax.plots.scores import scores_of
from regmax.plots.settings import Setting
from regmax.plots.text import readable


def record_examples(
    record: Mapping[str, Any],
    source: Sequence[str],
    target: Sequence[str] | None = None,
    *,
    batch: int = 0,
    call: int = -1,
    title: str = "Recorded attention",
) -> Examples:
    """The weights of a record as examples for `write_explorer`: a view for every layer and head.

    The page calls these weights *recorded*. The scores that its mappings map are the logarithms of the weights if no
    weight of a head is zero, as after softmax, else the weights themselves.

    Args:
        record: what `regmax.record_attention` recorded.
        source: the tokens that are attended to.
        target: the tokens that attend; `source` if None.
        batch: which sequence of the batch.
        call: which call of each layer, the last by default.
        title: the page's.

    Returns:
        Examples with the layers whose weights fit the tokens.

    Example:
        >>> import torch, regmax
        >>> attend = torch.nn.ModuleDict({"attend": regmax.nn.MultiheadAttention(8, 2, batch_first=True)})
        >>> x = torch.randn(1, 3, 8)
        >>> with regmax.record_attention(attend) as record:
        ...     _ = attend["attend"](x, x, x)
        >>> [view.name for view in record_examples(record, ["a", "b", "c"]).examples[0].views]
        ['attend, head 1', 'attend, head 2']
    """
    rows = tuple(readable(list(source if target is None else target)))
    columns = tuple(readable(list(source)))
    views = tuple(_views(record, (len(rows), len(columns)), rows, batch, call))
    if not views:
        shapes = {name: tuple(calls[call].shape) for name, calls in record.items()}
        raise ValueError(
            f"`record_examples(record, source, target)` needs as many tokens as the weights have keys and queries. "
            f"Got {len(columns)} and {len(rows)} for {shapes}."
        )
    shown = views[0].mapping or Setting("sparsemax")
    return Examples(
        (Example(columns, views),),
        title=title,
        start=(shown, shown),
        show="heads" if len(views) > 2 else "map",
    )


def _views(
    record: Mapping[str, Any], shape: tuple[int, int], target: tuple[str, ...], batch: int, call: int
) -> Iterator[View]:
    layers = {name: _heads(array(calls[call])[batch]) for name, calls in record.items()}
    fitting = {name: heads for name, heads in layers.items() if heads.shape[1:] == shape}
    # A single sparse head may leave out the future by itself; a causal model does so in all heads.
    square = shape[0] == shape[1]
    causal = square and not any(np.triu(heads, 1).any() for heads in fitting.values())
    for name, heads in fitting.items():
        for number, head in enumerate(heads, start=1):
            scores, mapping = _scores(head, causal=causal)
            label = f"{name}, head {number}" if len(heads) > 1 else name
            yield View(label, target, scores, mapping, layer=name, recorded=True)


def _heads(y: NDArray[np.float64]) -> NDArray[np.float64]:
    return y.reshape(-1, *y.shape[-2:]) if y.ndim > 1 else y.reshape(1, 1, -1)


def _scores(y: NDArray[np.float64], *, causal: bool) -> tuple[NDArray[np.float64], Setting]:
    """Scores that a mapping takes back to y; positions that no row of a causal model sees are deleted.

    sparsemax maps weights that sum to 1 to themselves. Recorded ones do so only up to rounding, also because the page
    stores float32. If the sum is smaller than 1, sparsemax gives the rest to the zeros; if it is larger, it takes the
    excess from the smallest weights. So all sums are made smaller by more than rounding, and the zeros far enough
    below 0.
    """
    seen = np.tril(np.ones(y.shape, bool)) if causal else np.ones(y.shape, bool)
    seen &= y.any(-1, keepdims=True)  # the query of a row without weights sees nothing
    if (y[seen] > 0).all():
        return np.where(seen, scores_of(y), -np.inf), Setting("softmax")
    total = np.where(seen.any(-1, keepdims=True), y.sum(-1, keepdims=True), 1.0)
    x = np.where(y > 0, y / total * (1 - 2.0**-22), -(2.0**-20))
    return np.where(seen, x, -np.inf), Setting("sparsemax")
