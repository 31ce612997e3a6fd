"""Generated corpora: they need no download, and every alignment is known."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from regmax.experiments.errors import ExperimentError

Example = TypeVar("Example")
_EXHAUSTED = 100_000  # draws without a new example


@dataclass(frozen=True)
class Splits(Generic[Example]):
    """A training, development and test set."""

    train: list[Example]
    dev: list[Example]
    test: list[Example]


def generate(make: Callable[[random.Random], Example], train: int, held_out: int = 200) -> Splits[Example]:
    """Distinct examples in three sets; they do not depend on the seed of the run.

    The development and test sets have `held_out` examples each, but no more than the training set.

    Example:
        >>> from regmax.experiments.generate.translation import sentence
        >>> splits = generate(sentence, train=10, held_out=2)
        >>> len(splits.train), len(splits.dev), len(splits.test)
        (10, 2, 2)
    """
    examples = _distinct(make, random.Random("regmax"))
    held_out = min(held_out, train)
    test, dev, train_set = ([next(examples) for _ in range(count)] for count in (held_out, held_out, train))
    return Splits(train_set, dev, test)


def _distinct(make: Callable[[random.Random], Example], draw: random.Random) -> Iterator[Example]:
    seen = set()
    repeated = 0  # in a row
    while repeated < _EXHAUSTED:
        example = make(draw)
        repeated += 1
        if example not in seen:
            seen.add(example)
            repeated = 0
            yield example
    raise ExperimentError(f"`generated` is too large: about {len(seen)} distinct examples can be generated.")
