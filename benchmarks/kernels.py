"""Time the C++ core against torch.softmax: one thread, float32, 2**20 scores, forward and forward plus backward.

    python benchmarks/kernels.py [--scores normal|attention|flat] [--mask] [--d 32 64 ...] [--library path/to/_core.so]

Prints the ratio of medians, core / softmax, per mapping and row length. The two are timed in turns, in one process, so
that other load on the machine affects both. Only the kernels are timed, without the autograd wrapper around them.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from regmax.timing import in_turns

SCORES = 2**20
KERNELS = {"sparsemax": 0, "fusedmax": 1, "oscarmax": 2, "sqpnormmax": 3}


def default_library() -> Path:
    """The core of the installed package; an editable one has several folders."""
    spec = importlib.util.find_spec("regmax")
    folders = [] if spec is None else spec.submodule_search_locations or []
    for path in (Path(folder) / "_core.so" for folder in folders):
        if path.exists():
            return path
    raise SystemExit("`benchmarks/kernels.py` needs the installed package or --library path/to/_core.so.")


def strength(kernel: str, d: int) -> float:
    """The strength at which a mapping is timed."""
    return {"sparsemax": 0.0, "fusedmax": 0.1, "oscarmax": min(0.01, 1 / d), "sqpnormmax": 1.5}[kernel]


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
        self, library: Path, x: torch.Tensor, v: torch.Tensor, keep: torch.Tensor | None, threads: int
    ):
        self.library = ctypes.CDLL(str(library))
        self.n, self.d = x.shape
        self.x, self.v, self.keep, self.threads = x, v, keep, threads
        self.y, self.out = torch.empty_like(x), torch.empty_like(x)
        words = self.n * ((self.d + 63) // 64)
        self.support = torch.empty(words, dtype=torch.int64)
        self.joined = torch.empty(words, dtype=torch.int64)

    def _tail(self, theta: float) -> tuple[object, ...]:
        size = ctypes.c_int64
        mask = None if self.keep is None else _pointer(self.keep)
        mask_rows = size(1 if self.keep is None else len(self.keep))
        return (
            size(self.n),
            size(self.d),
            mask,
            mask_rows,
            size(1),
            ctypes.c_double(theta),
            None,
            self.threads,
        )

    def argmax(self, kernel: str, theta: float) -> None:
        bits = _pointer(self.support), _pointer(self.joined)
        self.library.regmax_argmax_f32(
            KERNELS[kernel], _pointer(self.x), _pointer(self.y), *bits, *self._tail(theta)
        )

    def jacobian_product(self, kernel: str, theta: float) -> None:
        bits = _pointer(self.support), _pointer(self.joined)
        ends = _pointer(self.v), _pointer(self.out)
        self.library.regmax_jacobian_product_f32(
            KERNELS[kernel], _pointer(self.y), *bits, *ends, *self._tail(theta)
        )


def _pointer(tensor: torch.Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


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
    parser.add_argument("--library", type=Path, default=None)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    library = arguments.library or default_library()
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
