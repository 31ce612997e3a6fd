"""Offline compilation: every kernel compiles for NVIDIA and AMD without a GPU, and needs no stack.

`tools/compile_kernels.py` without arguments compiles all cases; docs/gpu.md has the most that a kernel takes.
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
# Every kernel for some target; fusedmax, the one with scans, needs the most registers, and float32 more than bfloat16.
# A process compiles several: importing torch and triton takes longer than compiling.
CASES = {
    "sm_80": [
        "row_candidates fusedmax 16x32",
        "long_rows fusedmax",
        "attention_candidates fusedmax 16 64x32",
        "candidates_in_one_pass fusedmax 64 64x64",
        "attention_products fusedmax 64 4x128",
    ],
    "sm_90": [
        "row_products fusedmax 16x32",
        "attention_candidates fusedmax 128 32x32 fp32",
        "attention_key_grads 64",
        "long_attention fusedmax 64",
        "long_attention_grads fusedmax 64 ordered",
    ],
    "gfx942": [
        "row_weights fusedmax 16x32",
        "long_products fusedmax 4x128",
        "attention_gather 64 4x128",
        "order_candidates 4x128",
        "list_queries",
        "dropout_of_slots",
    ],
}


@pytest.mark.parametrize("target", CASES)
def test_kernels_compile_without_a_stack(target: str) -> None:
    command = [sys.executable, str(ROOT / "tools" / "compile_kernels.py"), "--target", target]
    for case in CASES[target]:
        command += ["--case", case]
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^\| (.*) \| (\d+) / (\d+) / (\d+) \(.* s\) \|$", done.stdout, re.MULTILINE)
    assert {name for name, *_ in rows} == set(CASES[target])
    for name, registers, _, stack in rows:
        assert int(stack) == 0, name
        assert int(registers) <= 255, name
