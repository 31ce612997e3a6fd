"""ONNX programs pass the cases of the conformance suite in onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from conformance import judge
from conformance_frameworks import by_onnx, onnx

import regmax
from regmax.mappings import MAPPINGS

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
    for name in MAPPINGS:
        compare_rows_without_a_result(name)  # by the same programs


def compare_rows_without_a_result(name: str) -> None:
    """The loops end, and rows of NaN, with infinities and without scores are what they are in NumPy."""
    rng = np.random.default_rng(0)
    x, keep = rng.normal(size=(5, 9)).astype(np.float32), rng.random((5, 9)) > 0.2
    x[0, 3], x[1, 2], x[3, 4], keep[2] = np.nan, np.inf, -np.inf, False
    keep[0, 3] = keep[1, 2] = keep[3, 4] = True
    default = MAPPINGS[name].default
    theta = 0.1 if default is None else default
    y = by_onnx(name, x, keep, np.full((5, 1), theta, np.float32))
    expected = getattr(regmax, name)(x, mask=keep)
    np.testing.assert_allclose(y, expected, rtol=0, atol=2e-6, err_msg=name)
    assert np.array_equal(y[3] != 0, expected[3] != 0)
