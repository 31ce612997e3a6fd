"""ONNX programs pass all cases of the conformance suite in onnxruntime."""

from __future__ import annotations

import pytest
from conformance import RUNNERS, judge

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")


def test_all_cases_pass() -> None:
    passed, total, failed = judge(RUNNERS["onnx"][1]())
    assert failed == []
    assert passed == total > 1000
