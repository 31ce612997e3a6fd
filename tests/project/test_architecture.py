"""docs/architecture.md lists the functions that one call passes through: a trace of the call is compared with it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

TRACE = """
import sys, torch, regmax
x = torch.randn(64, 30, requires_grad=True)
regmax.fusedmax(x).sum().backward()
steps = []
def record(frame, event, argument):
    code = frame.f_code
    if event == "call" and "/src/regmax/" in code.co_filename:
        steps.append(code.co_filename.split("/src/regmax/")[1] + " " + code.co_name)
sys.setprofile(record)
y = regmax.fusedmax(x)
sys.setprofile(None)
steps.append("backward")
loss = y.sum()
sys.setprofile(record)
loss.backward()
sys.setprofile(None)
print("\\n".join(steps))
"""


def documented() -> list[str]:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    chain = page.split("Forward, in Python")[1].split("In C++")[0]
    steps = []
    for line in chain.splitlines():
        if line.startswith("Backward"):
            steps.append("backward")
        if match := re.match(r"\d+\. `([^`]+)`: (.+)", line):
            steps += [f"{match[1]} {name.split('.')[-1]}" for name in re.findall(r"`([^`]+)`", match[2])]
    return steps


def test_the_chain_of_one_call_is_the_one_on_the_page() -> None:
    run = subprocess.run([sys.executable, "-c", TRACE], capture_output=True, text=True, check=True, cwd=ROOT)
    assert run.stdout.split("\n")[:-1] == documented()
