"""The JAX front end passes the cases of the conformance suite, by the core's handlers and by JAX operations."""

from __future__ import annotations

import pytest
from conformance import judge
from conformance_frameworks import jax_front

pytest.importorskip("jax")

from regmax.frontends.jax import handlers

# JAX operations take minutes to compile and run for the few rows of more than 16 scores.
RUNS = [*([(True, 4096)] * handlers.available()), (False, 16)]


@pytest.mark.parametrize(("by_core", "longest"), RUNS)
def test_all_cases_pass(by_core: bool, longest: int) -> None:
    passed, total, failed = judge(jax_front(by_core, longest))
    assert failed == []
    assert passed == total > 1000
