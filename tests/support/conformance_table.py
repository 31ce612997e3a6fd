"""The conformance suite's table: every implementation that can run here, for docs/conformance.md.

python tests/support/conformance_table.py                # all
python tests/support/conformance_table.py onnx "core avx2 lanes"
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

from conformance import Implementation, judge
from conformance_frameworks import entmax, javascript, jax_front, keras, onnx
from conformance_kernels import (
    core,
    instruction_sets,
    reference,
    tensors,
    torch_compiled,
    torch_front,
    triton,
)

TIERS = ("all", "lanes", "whole", "levels", "scalar")

# What each needs, a module or a program, and the function that makes it.
RUNNERS: dict[str, tuple[str | None, Callable[[], Implementation]]] = {
    "reference": (None, reference),
    **{
        f"core {isa} {tier}": (None, partial(core, isa, None if tier == "all" else tier))
        for isa in instruction_sets()
        for tier in TIERS
    },
    "tensors": ("torch", tensors),
    "torch": ("torch", torch_front),
    "compile": ("torch", torch_compiled),
    "triton": ("triton", triton),
    "jax core": ("jax", partial(jax_front, True)),
    "jax jnp": ("jax", partial(jax_front, False)),
    "onnx": ("onnxruntime", onnx),
    "javascript": ("node", javascript),
    "entmax": ("entmax", entmax),
    "keras": ("keras", keras),
}
PEERS = ("entmax", "keras")


def main(arguments: list[str]) -> int:
    """Print the table of the runners that are named, or of all that can run here; return 1 if one of ours fails."""
    print("| implementation | cases passed | of |\n|---|---|---|")
    worst = 0
    for name in arguments or RUNNERS:
        needs, make = RUNNERS[name]
        if needs is not None and find_spec(needs) is None and shutil.which(needs) is None:
            print(f"{name}: {needs} is not installed", file=sys.stderr)
            continue
        implementation = make()
        passed, total, failed = judge(implementation)
        print(f"| {implementation.name} | {passed} | {total} |", flush=True)
        for case in failed[:20]:
            print(f"  {case}", file=sys.stderr)
        worst |= bool(failed) and name not in PEERS
    return worst


if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton
    sys.exit(main(sys.argv[1:]))
