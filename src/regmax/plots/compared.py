"""Several models on one page: the same sentences, head by head."""

from collections.abc import Mapping
from dataclasses import replace

from regmax.plots.examples import Example, Examples


def compare_examples(models: Mapping[str, Examples]) -> Examples:
    """Join the examples of several models, so that the explorer shows their heads side by side.

    Args:
        models: the examples of each model by its name, e.g. from `model_examples` or `record_examples`. All must be of
            the same sentences, with the same tokens.

    Returns:
        Examples with the views of all models. The page starts with the first two.

    Example:
        >>> from regmax.plots import parse_examples
        >>> one = parse_examples([{"source": ["a", "b"], "target": ["c"], "scores": [[1.0, 0.5]]}])
        >>> [view.model for view in compare_examples({"before": one, "after": one}).examples[0].views]
        ['before', 'after']
    """
    if len(models) < 2:
        raise ValueError(f"`compare_examples(models)` needs two or more models. Got {len(models)}.")
    first = next(iter(models.values()))
    for name, other in models.items():
        if [example.source for example in other.examples] != [example.source for example in first.examples]:
            raise ValueError(
                "`compare_examples(models)` needs the same sentences and tokens in all models. "
                f"Got others for {name!r}."
            )
    joined = tuple(
        _joined(dict(zip(models, same, strict=True)))
        for same in zip(*(each.examples for each in models.values()), strict=True)
    )
    left, right, *_ = (each.examples[0].views[0].mapping or each.start[0] for each in models.values())
    title = f"Attention of {' and '.join(models)}"
    return Examples(joined, title=title, start=(left, right), show=first.show)


def _joined(models: Mapping[str, Example]) -> Example:
    views = tuple(replace(view, model=name) for name, example in models.items() for view in example.views)
    note = next((example.note for example in models.values() if example.note), "")
    return replace(next(iter(models.values())), views=views, note=note)
