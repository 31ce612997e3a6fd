"""ONNX programs pass the cases of the conformance suite in onnxruntime."""

from __future__ import annotations

import pytest
from conformance import judge
from conformance_frameworks import onnx

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")


# An export takes ten seconds per mapping and type. tests/support/conformance_table.py runs both types.
DTYPE = "float32"


def test_all_cases_pass() -> None:
    runner = onnx()
    chosen = runner._replace(covers=lambda case: runner.covers(case) and case.x.dtype == DTYPE)
    passed, total, failed = judge(chosen)
    assert failed == []
    assert passed == total > 500
