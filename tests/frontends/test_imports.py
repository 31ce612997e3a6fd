"""The compiler, which takes as long to import as torch, is imported by those who compile."""

from __future__ import annotations

import subprocess
import sys

import torch

EAGER = """
import sys, torch, regmax
x = torch.randn(4, 9, requires_grad=True)
regmax.fusedmax(x).sum().backward()
regmax.nn.Oscarmax()(x)
regmax.attention(*torch.randn(3, 1, 2, 9, 8), mapping="entmax")
assert "torch._dynamo" not in sys.modules
"""
COMPILED = """
both = lambda x: (regmax.fusedmax(torch.func.vmap(regmax.sparsemax)(x)), regmax.prox_owl(x, torch.arange(9.0).flip(0)))
compiled = torch.compile(both, fullgraph=True, backend="aot_eager")
for found, expected in zip(compiled(x), both(x), strict=True):
    torch.testing.assert_close(found, expected)
"""


def run(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


def test_eager_calls_do_not_import_the_compiler() -> None:
    run(EAGER)


def test_a_compiler_that_is_imported_later_knows_the_functions() -> None:
    torch.compile(run)  # skips the test where the compiler is not supported
    run(EAGER + COMPILED)
