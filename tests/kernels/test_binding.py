"""The extension module `regmax._core`: it refuses what it cannot compute, and loses no memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import regmax
from regmax.kernels import native
from regmax.kernels.native import attention, library

ROWS = np.ones((2, 3), np.float32), np.empty((2, 3), np.float32), np.empty((2, 3), np.float32)


def call_argmax(dtype: int = 4, kernel: int = 0, theta: float = 0.0, gamma: float = 1.0) -> None:
    x, y, _ = (array.ctypes.data for array in ROWS)
    native.core.argmax(dtype, kernel, x, y, 2, 3, theta, gamma, 1)


def call_product(dtype: int = 4, kernel: int = 0, theta: float = 0.0, gamma: float = 1.0) -> None:
    y, v, out = (array.ctypes.data for array in ROWS)
    native.core.jacobian_product(dtype, kernel, y, v, out, 2, 3, theta, gamma, 1)


@pytest.mark.parametrize("call", [call_argmax, call_product])
@pytest.mark.parametrize(
    "wrong",
    [
        {"dtype": 5},
        {"kernel": -1},
        {"kernel": 6},
        {"kernel": 1, "theta": -0.1},
        {"kernel": 1, "theta": float("nan")},
        {"kernel": 3, "theta": 1.0},
        {"gamma": 0.0},
        {"gamma": float("inf")},
    ],
)
def test_a_bad_argument_is_an_error(call: Callable[..., None], wrong: dict[str, float]) -> None:
    call()
    with pytest.raises(ValueError, match="needs a known kernel and type"):
        call(**wrong)


def test_a_kernel_code_of_more_than_32_bits_is_an_error() -> None:
    with pytest.raises(OverflowError, match="32 bits"):
        call_argmax(kernel=2**32)


def test_a_missing_array_is_an_error() -> None:
    with pytest.raises(ValueError, match="every array"):
        native.core.argmax(4, 0, ROWS[0].ctypes.data, None, 2, 3, 0.0, 1.0, 1)


@pytest.mark.parametrize(
    ("name", "least"), [("argmax", 9), ("jacobian_product", 10), ("prox_owl", 7), ("attention_take", 6)]
)
def test_the_number_and_the_types_of_arguments_are_checked(name: str, least: int) -> None:
    function = getattr(native.core, name)
    with pytest.raises(TypeError, match=rf"expected {least} to \d+ arguments, got 2"):
        function(0, None)
    with pytest.raises((TypeError, ValueError)):
        function("sparsemax", *[None] * (least - 1))


def forward(keep: bool) -> object:
    """A pass with 2 heads, 3 queries and 5 keys."""
    q, k, v = torch.randn(2, 3, 16), torch.randn(2, 5, 16), torch.randn(2, 5, 16)
    out = torch.empty(2, 3, 16)
    shape, absent = (2, 1, 3, 5, 16, 16), (None, None, 0) * 2
    pointers = q.data_ptr(), k.data_ptr(), v.data_ptr()
    strengths = 0.0, 1.0, 0.25, False, None, 1, None, 1
    screen = None, None, None, 0
    call = 4, 0, *strengths, *shape, *pointers, None, 0, *absent, 0.0, 0, False, 1, *screen
    return native.core.attention_forward(*call, out.data_ptr(), None, keep)


def test_weights_are_taken_once() -> None:
    held = forward(keep=True)
    size = native.core.attention_size(held)
    assert size >= 6
    starts, columns = torch.empty(7, dtype=torch.int64), torch.empty(size, dtype=torch.int32)
    values = torch.empty(size)
    pointers = starts.data_ptr(), columns.data_ptr(), values.data_ptr()
    native.core.attention_take(held, size, *pointers, None)
    assert starts[-1] == size
    torch.testing.assert_close(values.sum(), torch.tensor(6.0))
    with pytest.raises(ValueError, match="every array"):
        native.core.attention_take(held, size, *pointers, None)


def test_blocks_that_do_not_fit_stay_empty() -> None:
    held = forward(keep=True)
    starts = torch.empty(7, dtype=torch.int64)
    native.core.attention_take(held, 0, starts.data_ptr(), None, None, None)
    assert (starts == 0).all()


def test_weights_that_nobody_takes_are_freed() -> None:
    resource = pytest.importorskip("resource")
    q = torch.randn(1, 256, 64)

    def drop_weights() -> None:
        problem = attention.Problem("sqpnormmax", 1.5, 1.0, 0.01, False, None, None, None, 0.0, 0, False)
        call = attention._arguments(problem, attention.Operands(q, q, q, None, None, None))
        assert native.core.attention_forward(*call, torch.empty_like(q).data_ptr(), None, True) is not None

    drop_weights()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(200):  # each holds 64K weights of 8 bytes
        drop_weights()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000  # KiB


def test_without_keeping_there_are_no_weights() -> None:
    assert forward(keep=False) is None
    with pytest.raises(ValueError, match="PyCapsule"):
        native.core.attention_size(None)


def test_a_core_of_another_version_is_refused() -> None:
    module = ModuleType("regmax._core")
    module.__file__ = "_core.so"
    with pytest.raises(ImportError, match=r"Got an older one in _core\.so: reinstall regmax"):
        library._checked(module)
    module.abi_version = lambda: 99  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="Got 99 in"):
        library._checked(module)


def test_the_environment_names_the_core(tmp_path: Path) -> None:
    other = tmp_path / "other.so"
    other.write_bytes(Path(native.core.__file__).read_bytes())
    program = "import regmax.kernels.native as n; print(n.core.__file__, n.instruction_set())"
    environment = {**os.environ, "REGMAX_LIBRARY": str(other)}
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == [str(other), native.instruction_set()]


def test_the_core_is_called_without_ctypes() -> None:
    """Other uses: the search for OpenMP, and the addresses of the XLA handlers, which JAX takes from ctypes."""
    source = Path(regmax.__file__).parent
    users = {path.name for path in source.rglob("*.py") if "import ctypes" in path.read_text()}
    assert users == {"threads.py", "handlers.py"}
