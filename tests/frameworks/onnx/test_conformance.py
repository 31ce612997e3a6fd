"""ONNX programs pass all cases of the conformance suite in onnxruntime."""

from __future__ import annotations

import pytest
from conformance import judge
from conformance_frameworks import onnx

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")


def test_all_cases_pass() -> None:
    passed, total, failed = judge(onnx())
    assert failed == []
    assert passed == total > 1000
