"""The cases that `make test` leaves to `make test-long`, and those which stand for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import pytest

MARKERS = (
    "long: a case that only `make test-long` runs; another one, of the same test or file, stands for it",
    "pairs: `make test` runs as many cases as join every two values of the parameters, `make test-long` all",
)


def represented(cases: Iterable[Any], by: Iterable[Any]) -> list[Any]:
    """The parameters of a test: those in `by` always, the others marked `long`."""
    always = list(by)
    return [
        case if case in always else pytest.param(*_values(case), marks=pytest.mark.long) for case in cases
    ]


def _values(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) else (case,)


def covering(cases: Sequence[Mapping[str, Hashable]]) -> list[int]:
    """The positions of a few cases in which every two values meet that meet in any case.

    They find each fault that depends on one or two parameters. Greedy: the next case is the one with the most new
    pairs, the first of equals.
    """
    left = {
        number: set(combinations(sorted(case.items()), min(2, len(case))))
        for number, case in enumerate(cases)
    }
    chosen = []
    while left:
        best = max(left, key=lambda number: len(left[number]))
        found = left.pop(best)
        chosen.append(best)
        left = {number: pairs - found for number, pairs in left.items() if not pairs <= found}
    return sorted(chosen)


def among(items: Iterable[pytest.Item], represented: Callable[[Mapping[str, Any]], bool]) -> set[pytest.Item]:
    """The cases of `make test-long` only: by their marks, or because others stand for their parameters."""
    long, crossed = set(), defaultdict(list)
    for item in items:
        case = getattr(item, "callspec", None)
        if item.get_closest_marker("long") or (case and represented(case.params)):
            long.add(item)
        elif case and item.get_closest_marker("pairs"):
            crossed[item.nodeid.partition("[")[0]].append(item)
    for cases in crossed.values():
        # A value is one object in all cases; values need not be comparable.
        values = [{name: id(value) for name, value in case.callspec.params.items()} for case in cases]
        kept = covering(values)
        long |= set(cases) - {cases[number] for number in kept}
    return long
