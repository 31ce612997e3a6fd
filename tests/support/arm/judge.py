"""Adversarial rows through the core as compiled for ARM: `python tests/support/arm/judge.py COMMAND... [--rows N]`.

COMMAND runs the program of rows.cpp, in an emulator if this machine has another processor (`make arm`). Its output is
checked like this machine's core in adversarial.py, and compared with it.
"""

from __future__ import annotations

import argparse
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from adversarial import backward_faults, forward_faults
from adversarial_rows import Batch, random_batch

from regmax.kernels import native


def record(batch: Batch, v: np.ndarray) -> bytes:
    """A batch in the format of rows.cpp."""
    head = struct.pack(
        "=iiqqd", native.CODES[batch.kernel], batch.keep is not None, *batch.x.shape, batch.theta
    )
    mask = b"" if batch.keep is None else batch.keep.astype(np.uint8).tobytes()
    return head + batch.x.tobytes() + mask + v.tobytes()


def make_batches(rows: int, seed: int) -> list[tuple[Batch, np.ndarray]]:
    """Batches of the four mappings, each with directions for its Jacobian."""
    batches, done, tried = [], 0, 0
    while done < rows:
        rng = np.random.default_rng([seed, tried])
        batch, tried = random_batch(rng), tried + 1
        if not batch.kernel.startswith("prox"):
            batches.append((batch, rng.normal(size=batch.x.shape).astype(np.float32)))
            done += len(batch.x)
    return batches


def main() -> int:
    parser = argparse.ArgumentParser(description="Judge the core as compiled for ARM.")
    parser.add_argument("command", nargs="+")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    batches = make_batches(arguments.rows, arguments.seed)
    stream = b"".join(record(batch, v) for batch, v in batches)
    answers = np.frombuffer(
        subprocess.run(arguments.command, input=stream, stdout=subprocess.PIPE, check=True).stdout, np.float32
    )
    native.use_instruction_set("baseline")
    rows, faults, other = 0, 0, 0
    for batch, v in batches:
        (y, product), answers = answers[: 2 * v.size].reshape(2, *v.shape), answers[2 * v.size :]
        for fault in forward_faults(batch, y) or backward_faults(batch, y, v, product):
            faults += 1
            print(f"{batch.kernel}({batch.theta:g}), {batch.kind}, {batch.x.shape}: {fault}")
        here = native.argmax(batch.kernel, batch.x, batch.keep, batch.theta)
        rows, other = rows + len(y), other + int((y != here).any(axis=1).sum())
    print(f"{rows:,} rows, {faults} faults; {other:,} rows differ from this machine's in some bit")
    return 1 if faults or answers.size else 0


if __name__ == "__main__":
    sys.exit(main())
