"""The JAX front end passes the cases of the conformance suite, by the core's handlers and by JAX operations."""

from __future__ import annotations

import pytest
from conformance import judge
from conformance_frameworks import jax_front

pytest.importorskip("jax")

from regmax.frontends.jax import handlers


@pytest.mark.skipif(not handlers.available(), reason="the handlers were not built: make jax-handlers")
def test_all_cases_pass_by_the_core() -> None:
    passed, total, failed = judge(jax_front(True))
    assert failed == []
    assert passed == total > 1000


def test_short_cases_pass_by_jax_operations() -> None:
    """XLA takes minutes for the few longer rows, and for both types: tests/support/conformance_table.py runs them."""
    passed, total, failed = judge(jax_front(False, longest=16, dtypes=("float64",)))
    assert failed == []
    assert passed == total > 500
