"""The compiler, which takes as long to import as torch, is imported by those who compile."""

from __future__ import annotations

import subprocess
import sys

from fronts import COMPILES

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


def test_eager_calls_do_not_import_the_compiler_which_later_knows_the_functions() -> None:
    code = EAGER + COMPILED if COMPILES else EAGER
    subprocess.run([sys.executable, "-c", code], check=True)
