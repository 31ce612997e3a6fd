"""The attention tests check the fused path: none of them may silently use the dense fallback."""

from __future__ import annotations

import pytest

from regmax.kernels import native
from regmax.kernels.native import attention as core


@pytest.fixture
def fused_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that the core's attention was called with."""
    assert native.available(), "these tests need the native core: build it first"
    calls: list[str] = []
    forward, forward_strided = core.forward, core.forward_strided

    def counted(problem: core.Problem, *tensors: object, **options: object) -> object:
        calls.append(problem.kernel)
        return forward(problem, *tensors, **options)

    def counted_strided(call: core.StridedCall, *tensors: object) -> None:
        calls.append(call.kernel)
        forward_strided(call, *tensors)

    monkeypatch.setattr(core, "forward", counted)
    monkeypatch.setattr(core, "forward_strided", counted_strided)
    return calls
