"""Total variation in tensor operations: joining blocks by sorting, against splitting at level sets.

    python benchmarks/total_variation.py [--lam 0.01 0.1]

`tensors.pooling` is a fixed sequence of operations. `tensors.splitting` repeats rounds until nothing splits: here by a
Python loop, which reads a number per round. Processor time of one thread in milliseconds, the smaller of two; errors in
float32 are against pooling in float64.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regmax.kernels.tensors import pooling, splitting

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
from row_families import FAMILIES

SHAPES = ((256, 64), (32, 512), (4, 4096))  # rows and scores


def loop(more: Callable[..., Tensor], body: Callable[..., Any], state: tuple[Tensor, ...]) -> Any:
    """`while_loop` as Python runs it."""
    while bool(more(*state)):
        state = body(*state)
    return state


def milliseconds(solve: Callable[[Tensor, Tensor], Tensor], x: Tensor, edges: Tensor) -> float:
    """The smaller of two calls, after one."""
    solve(x, edges)
    times = []
    for _ in range(2):
        start = time.thread_time()
        solve(x, edges)
        times.append(time.thread_time() - start)
    return 1e3 * min(times)


def main() -> None:
    """Print a table of times and errors."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lam", type=float, nargs="+", default=[0.01, 0.1])
    given = parser.parse_args()
    torch.set_num_threads(1)
    splitting.while_loop = loop  # type: ignore[assignment]
    rng = np.random.default_rng(0)
    print("| scores | lam | family | pooling, ms | splitting, ms | error of pooling | of splitting |")
    print("|---|---|---|---|---|---|---|")
    for n, d in SHAPES:
        for lam in given.lam:
            for name, family in FAMILIES.items():
                with np.errstate(over="ignore"):
                    x = torch.tensor(family(rng, n, d).astype(np.float32))
                edges = torch.full((n, d - 1), lam)
                exact = pooling.total_variation(x.double(), edges.double())
                solvers = pooling.total_variation, splitting.total_variation
                times = " | ".join(f"{milliseconds(solve, x, edges):.1f}" for solve in solvers)
                errors = " | ".join(
                    f"{float((solve(x, edges) - exact).abs().max()):.0e}" for solve in solvers
                )
                print(f"| {n} x {d} | {lam} | {name} | {times} | {errors} |", flush=True)


if __name__ == "__main__":
    main()
