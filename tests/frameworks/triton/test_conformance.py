"""The Triton kernels pass all cases of the conformance suite in Triton's interpreter."""

from __future__ import annotations

import pytest
from conformance import judge
from conformance_kernels import triton

pytest.importorskip("triton")


def test_all_cases_pass() -> None:
    passed, total, failed = judge(triton())
    assert failed == []
    assert passed == total > 1000
