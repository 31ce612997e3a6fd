"""Jitted mappings of JAX on the core against the torch front end, alternately in one process.

    python benchmarks/jax_rows.py
    python benchmarks/jax_rows.py --mapping oscarmax --threads 1 --clock cpu    # on a busy machine

Prints the medians in microseconds and their ratio, forward and forward with backward, on float32 rows of N(0, 1). Needs
`make jax-handlers`. torch's OpenMP threads sleep between calls (OMP_WAIT_POLICY=PASSIVE unless it is set): by default
they spin, on the cores of XLA's threads, and their time would count as JAX's.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

SHAPES = ((64, 30), (8192, 128), (512, 2048))


def programs(
    mapping: str, x: np.ndarray, v: np.ndarray
) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """The calls of JAX and torch, forward and forward with backward."""
    import jax
    import torch

    import regmax

    function = getattr(regmax, mapping)

    @jax.jit
    def both(x: jax.Array, v: jax.Array) -> Any:
        y, transpose = jax.vjp(function, x)
        return y, transpose(v)[0]

    forward = jax.jit(function)
    scores, direction = jax.numpy.asarray(x), jax.numpy.asarray(v)
    tensor, learned, grad = torch.tensor(x), torch.tensor(x, requires_grad=True), torch.tensor(v)
    return {
        "forward": (lambda: jax.block_until_ready(forward(scores)), lambda: function(tensor)),
        "forward, backward": (
            lambda: jax.block_until_ready(both(scores, direction)),
            lambda: torch.autograd.grad(function(learned), learned, grad),
        ),
    }


def alternately(
    first: Callable[[], Any], second: Callable[[], Any], rounds: int, clock: Callable[[], float]
) -> tuple[float, float]:
    """The medians of both calls, in microseconds."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 3):
        for call, found in zip((first, second), times, strict=True):
            start = clock()
            call()
            if number >= 3:  # after compilation
                found.append(1e6 * (clock() - start))
    return median(times[0]), median(times[1])


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mapping", default="fusedmax")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--threads", type=int, help="of torch and of XLA; all cores if omitted")
    parser.add_argument(
        "--clock", choices=("wall", "cpu"), default="wall", help="cpu: of all threads together"
    )
    options = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch is imported
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    if options.threads is not None:
        os.sched_setaffinity(0, range(options.threads))  # XLA has no other setting

    import torch

    from regmax.frontends.jax import handlers
    from regmax.kernels import native

    if not handlers.available():
        raise SystemExit("The handlers were not built: make jax-handlers")
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    threads = torch.get_num_threads()
    print(
        f"{options.mapping}, float32, {native.instruction_set()}, {threads} threads, {options.clock} time, µs"
    )
    print("| rows | | JAX | torch | JAX : torch |\n|---|---|---|---|---|")
    rng = np.random.default_rng(0)
    for shape in SHAPES:
        x, v = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
        for name, calls in programs(options.mapping, x, v).items():
            ours, torchs = alternately(*calls, options.rounds, clock)
            print(
                f"| {shape[0]:,} x {shape[1]:,} | {name} | {ours:.0f} | {torchs:.0f} | {ours / torchs:.2f} |"
            )


if __name__ == "__main__":
    main()
