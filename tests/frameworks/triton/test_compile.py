"""Offline compilation: every kernel compiles for NVIDIA and AMD without a GPU, and needs no stack.

`tools/compile_kernels.py` without arguments compiles all cases, and makes the table of docs/gpu.md.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

ROOT = Path(__file__).parents[3]
# One case of every kernel; fusedmax, the one with scans, needs the most registers.
CASES = {
    "row_candidates fusedmax 16x32": "sm_80",
    "row_weights fusedmax 16x32": "gfx942",
    "row_products fusedmax 16x32": "sm_90",
    "long_rows fusedmax": "sm_80",
    "attention_candidates fusedmax 16 64x32": "sm_80",
    "attention_gather 64 4x128": "gfx942",
    "attention_products fusedmax 64 4x128": "sm_80",
    "attention_key_grads 64": "sm_90",
}


def compiled(name: str, target: str) -> str:
    """The table's row."""
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    command = [sys.executable, str(ROOT / "tools" / "compile_kernels.py"), "--case", name, "--target", target]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("case", CASES)
def test_a_kernel_compiles_without_a_stack(case: str) -> None:
    rows = re.findall(
        r"^\| (.*) \| (\d+) / (\d+) / (\d+) \(.* s\) \|$", compiled(case, CASES[case]), re.MULTILINE
    )
    assert rows
    for name, registers, _, stack in rows:
        assert int(stack) == 0, name
        assert int(registers) <= 255, name
