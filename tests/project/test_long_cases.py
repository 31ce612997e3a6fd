"""What `make test` leaves to `make test-long` is represented by what it runs."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from long_cases import covering, represented


@pytest.mark.parametrize("sizes", [(9, 2, 4, 2), (9, 4, 3), (5, 2, 2), (3, 7), (4,), (2,) * 6], ids=str)
def test_every_two_values_meet(sizes: tuple[int, ...]) -> None:
    names = [f"p{number}" for number in range(len(sizes))]
    cases = [dict(zip(names, values, strict=True)) for values in product(*map(range, sizes))]
    chosen = [cases[number] for number in covering(cases)]
    largest = sorted(sizes)[-2:]
    for (one, n), (other, m) in combinations(zip(names, sizes, strict=True), 2):
        assert {(case[one], case[other]) for case in chosen} == set(product(range(n), range(m)))
    if len(sizes) > 2:
        assert len(chosen) <= 1.6 * largest[0] * largest[1] + 6
    else:
        assert chosen == cases


def test_one_case_that_is_asked_for_is_run() -> None:
    assert covering([{"a": 3, "b": 5}]) == [0]


def test_the_others_are_marked() -> None:
    one, two, three = represented([(1, "a"), (2, "a"), (3, "b")], by=[(2, "a")])
    assert two == (2, "a")
    assert [[mark.name for mark in case.marks] for case in (one, three)] == [["long"], ["long"]]
    assert three.values == (3, "b")
