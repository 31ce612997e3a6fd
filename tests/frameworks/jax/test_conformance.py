"""The JAX front end passes the cases of the conformance suite, by the core's handlers and by JAX operations."""

from __future__ import annotations

import pytest
from conformance import judge
from conformance_frameworks import jax_front
from exact_cases import Case

pytest.importorskip("jax")

from regmax.frontends.jax import handlers


@pytest.mark.skipif(not handlers.available(), reason="the handlers were not built: make jax-handlers")
def test_all_cases_pass_by_the_core() -> None:
    passed, total, failed = judge(jax_front(True))
    assert failed == []
    assert passed == total > 1000


def is_short(case: Case) -> bool:
    """In float64; without masks, rows of every length need their own program, so those of four lengths."""
    d = len(case.x)
    return case.x.dtype == "float64" and (d in (2, 5, 12, 16) if case.kernel.startswith("prox") else d <= 16)


def test_short_cases_pass_by_jax_operations() -> None:
    """XLA takes minutes for the few longer rows, and for both types: tests/support/conformance_table.py runs them."""
    passed, total, failed = judge(jax_front(False, is_short))
    assert failed == []
    assert passed == total > 500
