"""All heads of a transformer in one figure: a small heat map per layer and head."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regmax.plots import colours
from regmax.plots.figures import array, new_figure
from regmax.plots.scale import name_bar

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def attention_heads(
    attentions: Any,
    *,
    example: int | None = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    largest: float = 1.0,
) -> "Figure":
    """Draw the weights of every layer (rows) and head (columns) of a transformer; exact zeros are grey.

    Args:
        attentions: (layers, heads, target, source), or a sequence of one array or tensor per layer, (heads, target,
            source) or (batch, heads, target, source) as transformers returns it. NaN marks masked positions.
            A record of `regmax.record_attention` is drawn too.
        example: which example of a batch, counted from 0; may be omitted for a batch of one.
        layers: which layers, counted from 0; by default all.
        heads: which heads; by default all.
        largest: the weight of the darkest colour.

    Returns:
        The figure. The title of each head is the share of its weights that are exactly zero.

    Example:
        >>> import numpy as np, regmax
        >>> y = regmax.sparsemax(np.arange(2 * 3 * 4 * 4.0).reshape(2, 3, 4, 4) % 7)
        >>> figure = attention_heads(y)
        >>> len([axes for axes in figure.axes if axes.images])
        6
    """
    if isinstance(attentions, Mapping):  # a record of `regmax.record_attention`: the last call of each layer
        attentions = [calls[-1] for calls in attentions.values()]
    stacked = [_layer(layer, number, example) for number, layer in enumerate(attentions)]
    chosen_layers = range(len(stacked)) if layers is None else layers
    chosen_heads = range(len(stacked[0])) if heads is None else heads
    figure = new_figure(1.25 * len(chosen_heads) + 0.9, 1.35 * len(chosen_layers) + 0.4)
    grid = figure.subplots(len(chosen_layers), len(chosen_heads), squeeze=False)
    for i, layer in enumerate(chosen_layers):
        for j, head in enumerate(chosen_heads):
            image = _draw(grid[i, j], stacked[layer][head], largest)
            if i == 0:
                grid[i, j].text(
                    0.5, 1.3, f"head {head + 1}", transform=grid[i, j].transAxes, ha="center", fontsize=9
                )
        grid[i, 0].set_ylabel(f"layer {layer + 1}", fontsize=9)
    name_bar(figure.colorbar(image, ax=grid, shrink=0.6, aspect=24, pad=0.01))
    return figure


def _layer(attention: Any, number: int, example: int | None) -> NDArray[np.float64]:
    y = array(attention)
    if y.ndim == 4:
        if example is None and len(y) > 1:
            raise ValueError(
                f"`attention_heads(...)` draws one example of a batch. Got {len(y)}: choose one, `example=0` say."
            )
        if not 0 <= (example or 0) < len(y):
            raise ValueError(f"`attention_heads(..., example=...)` must be in [0, {len(y)}). Got {example}.")
        return y[example or 0]
    if y.ndim != 3:
        raise ValueError(f"`attentions[{number}]` must be (heads, target, source). Got shape {y.shape}.")
    return y


def _draw(axes: "Axes", y: NDArray[np.float64], largest: float) -> Any:
    """An image, not rectangles: at this size there is no room for borders, and equal cells have equal colours."""
    axes.set_facecolor("white")
    zeros = np.ma.masked_where(y != 0, y)
    grey = _one_colour(colours.ZERO)
    for layer, options in ((zeros, {"cmap": grey}), (np.ma.masked_where(~(y != 0) | np.isnan(y), y), {})):
        style: dict[str, Any] = {"cmap": colours.weight_colours(), "vmin": 0.0, "vmax": largest, **options}
        image = axes.imshow(layer, aspect="auto", interpolation="nearest", **style)
    share = np.mean(y[~np.isnan(y)] == 0)
    axes.set_title(f"{share:.0%} zero", fontsize=7, pad=2, color="#666666")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_color("#cccccc")
    return image


def _one_colour(colour: str) -> Any:
    from matplotlib.colors import ListedColormap

    return ListedColormap([colour])
