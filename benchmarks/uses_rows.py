"""The mappings as they are used: other strengths, learned strengths, values, half precision, over torch.softmax.

    python benchmarks/uses_rows.py [--rows 8192] [--d 128] [--rounds 60] [--only lam] [--isa avx2]

Forward and backward through the public functions, on N(0, 1) scores, one thread. Every use and softmax (of the use's
dtype) are timed in turns, in CPU time of the thread, so that other load on the machine affects both; the ratio is that
of the medians. Each line has the bar that the use must not exceed on an idle machine with AVX-512.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import regmax
from regmax.kernels import native


class Use(NamedTuple):
    """A use, its bar, and the strengths that learn; `function` gets the scores and these."""

    function: Callable[..., Tensor]
    bar: float | None = None
    strengths: tuple[Tensor, ...] = ()
    dtype: torch.dtype = torch.float32


def learned(value: float, *shape: int) -> Tensor:
    return torch.full(shape, value).requires_grad_()


def uses(n: int) -> dict[str, Use]:
    """The rows of the table."""
    module = regmax.nn.Fusedmax()
    compiled = torch.compile(regmax.nn.Fusedmax(), fullgraph=True)
    composition = regmax.OscarComposition(0.01)
    half = torch.bfloat16
    return {
        "sparsemax(x)": Use(regmax.sparsemax),
        "fusedmax(x)": Use(regmax.fusedmax),
        "oscarmax(x)": Use(regmax.oscarmax),
        "sqpnormmax(x)": Use(regmax.sqpnormmax),
        "sparsemax(x, gamma=2.0)": Use(lambda x: regmax.sparsemax(x, gamma=2.0), 1.3),
        "fusedmax(x, gamma=2.0)": Use(lambda x: regmax.fusedmax(x, gamma=2.0), 1.3),
        "fusedmax, gamma learned": Use(lambda x, g: regmax.fusedmax(x, gamma=g), 1.8, (learned(2.0),)),
        "fusedmax, lam learned": Use(lambda x, t: regmax.fusedmax(x, lam=t), 2.0, (learned(0.1),)),
        "fusedmax, lam per row": Use(lambda x, t: regmax.fusedmax(x, lam=t), 2.0, (learned(0.1, n, 1),)),
        "fusedmax, lam and gamma": Use(
            lambda x, t, g: regmax.fusedmax(x, lam=t, gamma=g), None, (learned(0.1), learned(2.0))
        ),
        "oscarmax, lam learned": Use(lambda x, t: regmax.oscarmax(x, lam=t), 2.2, (learned(0.01),)),
        "sqpnormmax(x, p=1.3)": Use(lambda x: regmax.sqpnormmax(x, p=1.3), 2.0),
        "sqpnormmax, p learned": Use(lambda x, t: regmax.sqpnormmax(x, p=t), 3.0, (learned(1.5),)),
        "nn.Fusedmax()(x)": Use(module, 1.3),
        "nn.Fusedmax()(x), compiled": Use(compiled, 1.5),
        "regularized_max(FusedLasso(.1), x)": Use(
            lambda x: regmax.regularized_max(regmax.FusedLasso(0.1), x), 2.0
        ),
        "regularized_argmax(OscarComposition(.01), x)": Use(
            lambda x: regmax.regularized_argmax(composition, x), 4.0
        ),
        "fusedmax(x), bfloat16": Use(regmax.fusedmax, 1.3, dtype=half),
        "sparsemax(x), bfloat16": Use(regmax.sparsemax, 1.3, dtype=half),
    }


class Race:
    """One use against softmax, forward and backward."""

    def __init__(self, use: Use, n: int, d: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(n, d, generator=generator).to(use.dtype).requires_grad_()
        self.v = torch.randn(n, d, generator=generator).to(use.dtype)
        self.use = use
        self.softmax = Use(lambda x: torch.softmax(x, -1), dtype=use.dtype)

    def run(self, use: Use) -> None:
        y = use.function(self.x, *use.strengths)
        v = self.v if y.shape == self.v.shape else self.v[..., 0]
        torch.autograd.grad(y, (self.x, *use.strengths), v)

    def ratio(self, rounds: int) -> tuple[float, float]:
        """The ratio of the medians, and softmax's median in milliseconds."""
        times: dict[str, list[int]] = {"use": [], "softmax": []}
        calls: list[tuple[str, Any]] = [("use", self.use), ("softmax", self.softmax)]
        for _, use in calls * 3:
            self.run(use)
        for _ in range(rounds):
            for name, use in random.sample(calls, 2):
                start = time.thread_time_ns()
                self.run(use)
                times[name].append(time.thread_time_ns() - start)
        own, softmax = (float(np.median(times[name])) for name in ("use", "softmax"))
        return own / softmax, softmax / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--d", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--only", default="", help="the uses whose names contain this")
    parser.add_argument("--isa", default=None, help="baseline, avx2 or avx512")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    regmax.sparsemax(torch.zeros(1))  # loads the front end
    if arguments.isa:
        native.use_instruction_set(arguments.isa)
    print(f"{arguments.rows} x {arguments.d}, {native.instruction_set()}, softmax in ms")
    for name, use in uses(arguments.rows).items():
        if arguments.only in name:
            ratio, softmax = Race(use, arguments.rows, arguments.d).ratio(arguments.rounds)
            bar = "" if use.bar is None else f"{use.bar:6.1f}{'' if ratio <= use.bar else '  over'}"
            print(f"{name:46}{ratio:6.2f}{bar:12}{softmax:9.2f}", flush=True)


if __name__ == "__main__":
    main()
