"""Time the C++ core against torch.softmax: one thread, float32, 2**20 scores, forward and forward plus backward.

    python benchmarks/kernels.py [--scores normal|attention|flat] [--mask] [--d 32 64 ...] [--library path/to/_core.so]

Prints the ratio of medians, core / softmax, per mapping and row length. The two are timed in turns, in one process, so
that other load on the machine affects both. Only the kernels are timed, without the autograd wrapper around them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from types import ModuleType

import numpy as np
import torch

from regmax.kernels import native
from regmax.timing import in_turns

SCORES = 2**20
KERNELS = ("sparsemax", "fusedmax", "oscarmax", "sqpnormmax", "entmax")


def strength(kernel: str, d: int) -> float:
    """The strength at which a mapping is timed."""
    return {
        "sparsemax": 0.0,
        "fusedmax": 0.1,
        "oscarmax": min(0.01, 1 / d),
        "sqpnormmax": 1.5,
        "entmax": 1.5,
    }[kernel]


def make_scores(kind: str, d: int) -> torch.Tensor:
    """2**20 scores in rows of d: independent normal, dot products of queries and keys, or nearly equal."""
    n = SCORES // d
    generator = torch.Generator().manual_seed(d)
    if kind == "attention":
        head = 64
        q = torch.randn(n, head, generator=generator)
        k = torch.randn(d, head, generator=generator)
        return (1.5 * q @ k.T / head**0.5).contiguous()
    return torch.randn(n, d, generator=generator) * (0.03 if kind == "flat" else 1.0)


class Core:
    """The core's two calls on rows, with preallocated buffers."""

    def __init__(
        self, core: ModuleType, x: torch.Tensor, v: torch.Tensor, keep: torch.Tensor | None, threads: int
    ):
        self.core = core
        self.x, self.v, self.keep, self.threads = x, v, keep, threads
        self.y, self.out = torch.empty_like(x), torch.empty_like(x)
        words = len(x) * ((x.shape[1] + 63) // 64)
        self.support = torch.empty(words, dtype=torch.int64)
        self.joined = torch.empty(words, dtype=torch.int64)

    def argmax(self, kernel: str, theta: float) -> None:
        self._call(self.core.argmax, kernel, theta, self.x, self.y)

    def jacobian_product(self, kernel: str, theta: float) -> None:
        self._call(self.core.jacobian_product, kernel, theta, self.y, self.v, self.out)

    def _call(self, function: Callable[..., None], kernel: str, theta: float, *arrays: torch.Tensor) -> None:
        addresses = [array.data_ptr() for array in (*arrays, self.support, self.joined)]
        mask = () if self.keep is None else (self.keep.data_ptr(), len(self.keep), 1)
        code, shape, bits = native.CODES[kernel], self.x.shape, addresses[-2:]
        function(4, code, *addresses[:-2], *shape, theta, 1.0, self.threads, *bits, *mask)


def ratios(core: Core, scores: torch.Tensor, d: int, repeats: int) -> dict[str, tuple[float, float]]:
    """(forward, forward + backward) relative to softmax, for every mapping."""
    y = torch.softmax(scores, -1)
    calls: dict[str, Callable[[], object]] = {
        "softmax": lambda: torch.softmax(scores, -1),
        "softmax backward": lambda: torch._softmax_backward_data(core.v, y, -1, torch.float32),
    }
    for kernel in KERNELS:
        theta = strength(kernel, d)
        calls[kernel] = partial(core.argmax, kernel, theta)
        calls[kernel + " backward"] = partial(core.jacobian_product, kernel, theta)
    times = {name: float(np.median(own)) for name, own in in_turns(calls, rounds=repeats).items()}
    both = times["softmax"] + times["softmax backward"]
    return {k: (times[k] / times["softmax"], (times[k] + times[k + " backward"]) / both) for k in KERNELS}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scores", choices=("normal", "attention", "flat"), default="normal")
    parser.add_argument(
        "--mask", action="store_true", help="a padding mask that keeps at least three quarters of a row"
    )
    parser.add_argument("--d", type=int, nargs="+", default=[32, 64, 128, 512, 2048])
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--library", default=None)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    library = native.load(arguments.library) if arguments.library else native.core
    print(f"{'d':>6}" + "".join(f"{kernel:>18}" for kernel in KERNELS))
    for d in arguments.d:
        x = make_scores(arguments.scores, d)
        keep = None
        if arguments.mask:
            lengths = torch.randint(
                3 * d // 4, d + 1, (len(x), 1), generator=torch.Generator().manual_seed(0)
            )
            keep = (torch.arange(d) < lengths).to(torch.uint8)
        scores = x if keep is None else x.masked_fill(keep == 0, float("-inf"))
        core = Core(library, x, torch.randn(x.shape), keep, threads=1)
        found = ratios(core, scores, d, arguments.repeats)
        print(
            f"{d:>6}" + "".join(f"{forward:>10.2f} /{both:>6.2f}" for forward, both in found.values()),
            flush=True,
        )


if __name__ == "__main__":
    main()
