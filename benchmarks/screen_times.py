"""Time attention with the 8-bit screen and without it against torch's `scaled_dot_product_attention` (softmax).

    python benchmarks/screen_times.py [--n 1024 2048 4096] [--threads 1 2] [--mappings sparsemax fusedmax] [--json FILE]

All attend to the same tensors and take turns in one process: 8 heads of 64 with attention-like and flat scores, 4 heads
of 128, and one query of many heads with a `KeyScreen` of its keys. CPU time on one thread, wall clock on more; a ratio
is the median over the rounds. Prints tables in Markdown, with the bars of sparsemax. Needs AVX-512 VNNI.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import regmax
from regmax.bench.attention_cases import inputs
from regmax.bench.attention_uses import gradients
from regmax.files import write_atomically
from regmax.kernels import native
from regmax.timing import CPU, WALL, in_turns

# Time relative to SDPA, forward and forward + backward, attention-like scores, 8 heads of 64, by the number of keys.
BARS = {1024: (0.30, 0.12), 2048: (0.26, 0.09), 4096: (0.24, 0.075)}
DECODING_BAR = 0.2
ROUNDS = {1024: 25, 2048: 13, 4096: 7}
SCREEN, FLOATS, SOFTMAX = "screen", "floats", "softmax"

Attend = Callable[..., Any]


class Times(NamedTuple):
    """The times of a mapping relative to SDPA: with the screen and without it, forward and forward + backward."""

    case: str
    mapping: str
    n: int
    threads: int
    forward: tuple[float, float]
    both: tuple[float, float]


def measure(
    lengths: Sequence[int], threads: Sequence[int], mappings: Sequence[str]
) -> Iterator[tuple[str, Times]]:
    """The times of training calls."""
    cases = {"8 heads of 64": attention_like, "4 heads of 128": large_heads, "flat scores": flat_scores}
    for case, make in cases.items():
        for n in lengths if make is attention_like else [n for n in lengths if n == 2048]:
            tensors = make(n)
            for count in threads:
                torch.set_num_threads(count)
                for mapping in mappings:
                    yield case, Times(case, mapping, n, count, *training(tensors, mapping, n, count))


def attention_like(n: int) -> tuple[Tensor, ...]:
    return inputs(n, "attention")


def flat_scores(n: int) -> tuple[Tensor, ...]:
    return inputs(n, "flat")


def large_heads(n: int) -> tuple[Tensor, ...]:
    """Four heads of 128, each two of 64 side by side: two keys stand out."""
    return tuple(torch.cat(x.detach().chunk(2, 1), -1).requires_grad_() for x in inputs(n, "attention"))


def training(
    tensors: tuple[Tensor, ...], mapping: str, n: int, threads: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Forward, then forward + backward."""
    ours = partial(regmax.attention, mapping=mapping)
    detached = [x.detach() for x in tensors]
    found = []
    for call in (lambda attend: attend(*detached), lambda attend: gradients(attend, tensors)):
        calls = {
            SOFTMAX: partial(call, scaled_dot_product_attention),
            SCREEN: partial(_switched, True, partial(call, ours)),
            FLOATS: partial(_switched, False, partial(call, ours)),
        }
        found.append(_ratios(calls, ROUNDS.get(n, 7), threads))
    return found[0], found[1]


def decoding() -> Iterator[tuple[str, tuple[float, float]]]:
    """One query of every head, with a copy of its keys in 8 bits and without."""
    for heads, keys, e in ((32, 4096, 128), (8, 32768, 64)):
        generator = torch.Generator().manual_seed(keys)
        q, k, v = (torch.randn(1, heads, rows, e, generator=generator) for rows in (1, keys, keys))
        ours = partial(regmax.attention, q, k, v, mapping="fusedmax")
        calls = {
            SOFTMAX: partial(scaled_dot_product_attention, q, k, v),
            SCREEN: partial(ours, key_screen=regmax.KeyScreen(k)),
            FLOATS: ours,
        }
        torch.set_num_threads(1)
        yield f"1 of {heads} heads, {keys:,} keys of {e}", _ratios(calls, 51, 1)


def _switched(on: bool, call: Callable[[], object]) -> None:
    native.use_int8_screen(on)
    call()


def _ratios(calls: dict[str, Callable[[], object]], rounds: int, threads: int) -> tuple[float, float]:
    try:
        times = in_turns(calls, rounds=rounds, clock=CPU if threads == 1 else WALL)
    finally:
        native.use_int8_screen(True)
    own, floats = (float(np.median(times[key] / times[SOFTMAX])) for key in (SCREEN, FLOATS))
    return own, floats


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write JSON if requested."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, nargs="+", default=list(BARS), dest="lengths")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--mappings", nargs="+", default=["sparsemax", "fusedmax"])
    parser.add_argument("--json", type=Path, help="write the times to this file")
    options = parser.parse_args(arguments)
    if not native.int8_screen():
        raise SystemExit("This machine has no AVX-512 VNNI, or REGMAX_INT8=0.")
    print("Forward / forward + backward, relative to SDPA.\n")
    print("| case | n | threads | mapping | with the screen | without | bar |\n|---|---|---|---|---|---|---|")
    rows = []
    for case, times in measure(options.lengths, options.threads, options.mappings):
        rows.append(times._asdict())
        (own, floats), (own_both, floats_both) = times.forward, times.both
        barred = case == "8 heads of 64" and times.mapping == "sparsemax"
        bar = " / ".join(f"{each:g}" for each in BARS.get(times.n, ())) if barred else ""
        print(
            f"| {case} | {times.n:,} | {times.threads} | {times.mapping} | {own:.2f} / {own_both:.3f} | "
            f"{floats:.2f} / {floats_both:.3f} | {bar} |",
            flush=True,
        )
    print("\n| decoding, fusedmax | with a KeyScreen | without | bar |\n|---|---|---|---|")
    for case, (own, floats) in decoding():
        rows.append({"case": case, "decoding": (own, floats)})
        print(f"| {case} | {own:.2f} | {floats:.2f} | {DECODING_BAR} |", flush=True)
    if options.json:
        write_atomically(options.json, json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
