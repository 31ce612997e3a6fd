"""Time `regmax.attention` against torch's `scaled_dot_product_attention` (softmax), and measure the memory it takes.

    python benchmarks/attention.py [--quick] [--n 512 1024 ...] [--scores attention flat] [--threads 1 2] [--json FILE]

Both attend to the same tensors, 8 heads of dimension 64 in float32, and take turns in one process, so that other load
on the machine affects both; a ratio is that of medians. Memory is the growth of the peak resident size during the call,
in a separate process, relative to the dense composition: scores, mapping, matmul.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import regmax
from regmax.bench.attention_cases import inputs
from regmax.files import write_atomically
from regmax.resolver import resolve
from regmax.timing import in_turns

MAPPINGS = ("sparsemax", "fusedmax", "oscarmax", "sqpnormmax", "entmax")
SCORES = ("attention", "flat", "constant")
# Upper bounds of the time relative to softmax, for attention-like scores and for flat ones.
BARS = {"sparsemax": 0.2, "fusedmax": 0.3, "oscarmax": 0.3, "sqpnormmax": 0.3, "entmax": 0.3}
FORWARD_BAR, FLAT_BAR, MEMORY_BAR = 0.8, 1.2, 0.15

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def measure(
    quick: bool = False,
    lengths: Sequence[int] = (512, 1024, 2048, 4096),
    scores: Sequence[str] = SCORES,
    threads: Sequence[int] = (1, 2),
    mappings: Sequence[str] = MAPPINGS,
    memory: bool = True,
) -> list[dict[str, Any]]:
    """One row per mapping, length, kind of scores, causality, direction and number of threads; then the memory."""
    if quick:
        lengths, scores, threads, memory = [n for n in lengths if n <= 1024], scores[:1], threads[:1], False
    rows = []
    before = torch.get_num_threads()
    try:
        for n in lengths:
            for kind in scores:
                for is_causal in (False, True) if kind == "attention" else (False,):
                    for count in threads:
                        torch.set_num_threads(count)
                        found = compare(n, kind, is_causal, mappings, repeats=3 if quick else 7)
                        rows += [{**row, "threads": count} for row in found]
    finally:
        torch.set_num_threads(before)
    return rows + ([measure_memory(name) for name in mappings] if memory else [])


def compare(
    n: int, kind: str, is_causal: bool, mappings: Sequence[str], repeats: int
) -> list[dict[str, Any]]:
    """Forward, and forward + backward, of every mapping relative to softmax."""
    q, k, v = inputs(n, kind)
    out_grad = torch.randn(v.shape, generator=torch.Generator().manual_seed(1))
    detached = [x.detach() for x in (q, k, v)]
    attend: dict[str, Attend] = {"softmax": partial(scaled_dot_product_attention, is_causal=is_causal)}
    for name in mappings:
        attend[name] = partial(regmax.attention, mapping=mapping_of(name, n), is_causal=is_causal)
    forward = {name: partial(call, *detached) for name, call in attend.items()}
    both = {name: partial(_train, call, q, k, v, out_grad) for name, call in attend.items()}
    rows = []
    for direction, calls in (("forward", forward), ("forward + backward", both)):
        seconds = {
            name: 1e-9 * float(np.median(own)) for name, own in in_turns(calls, rounds=repeats).items()
        }
        for name in mappings:
            where = ", causal" if is_causal else ""
            ratio = seconds[name] / seconds["softmax"]
            row = {"mapping": name, "n": n, "scores": kind, "causal": is_causal, "direction": direction}
            row |= {"run": f"{kind} scores{where}, {direction}", "ratio": ratio, "seconds": seconds[name]}
            rows.append(
                row | {"bar": bar(name, kind, direction), "nonzeros": _nonzeros(attend[name], detached)}
            )
    return rows


def bar(mapping: str, kind: str, direction: str) -> float | None:
    """The upper bound of a ratio."""
    if kind == "attention":
        return FORWARD_BAR if direction == "forward" else BARS[mapping]
    return FLAT_BAR if direction == "forward + backward" else None


def mapping_of(name: str, n: int) -> Any:
    """The timed mapping: oscarmax has a strength that suits every length."""
    return regmax.Oscar(lam=1 / n) if name == "oscarmax" else name


def _train(attend: Attend, q: Tensor, k: Tensor, v: Tensor, out_grad: Tensor) -> None:
    torch.autograd.grad(attend(q, k, v), (q, k, v), out_grad)


def _nonzeros(attend: Any, tensors: Sequence[Tensor]) -> float:
    """Nonzero weights per query."""
    _, weights = attend(*tensors, return_weights="sparse")
    return len(weights.values) / (len(weights.starts) - 1)


def measure_memory(mapping: str, n: int = 4096) -> dict[str, Any]:
    """Peak memory of forward + backward, sparse relative to dense, each in a separate process."""
    sparse, dense = (
        int(subprocess.check_output([sys.executable, __file__, "--peak", path, mapping, str(n)], text=True))
        for path in ("sparse", "dense")
    )
    row = {"mapping": mapping, "n": n, "bytes": sparse, "dense_bytes": dense, "bar": MEMORY_BAR}
    return row | {"measure": "peak memory", "share": sparse / dense}


def peak(path: str, mapping: str, n: int) -> int:
    """The growth in bytes of this process's peak memory during forward + backward."""
    torch.set_num_threads(1)
    q, k, v = inputs(n, "attention")
    small = inputs(64, "attention")  # code loaded at the first call does not depend on n
    found = resolve(mapping_of(mapping, n))
    # A function that attention does not know receives dense scores.
    attend = partial(regmax.attention, mapping=found if path == "sparse" else lambda x, dim: found(x, dim))
    attend(*small).sum().backward()
    before = _peak_kilobytes()
    attend(q, k, v).sum().backward()
    return 1024 * (_peak_kilobytes() - before)


def _peak_kilobytes() -> int:
    """The peak resident size, from Linux if possible: getrusage starts with that of the parent process."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM")))


def lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The rows as text; missed bars are marked."""
    text = []
    for row in rows:
        if "share" in row:
            size = f"{row['bytes'] / 2**20:.0f} MB of {row['dense_bytes'] / 2**20:.0f} MB"
            value, label = row["share"], f"{row['measure']}, {size}"
        else:
            value, label = (
                row["ratio"],
                f"{row['run']}, {row['threads']} threads, {row['nonzeros']:.1f} nonzeros",
            )
        verdict = (
            "" if row["bar"] is None else f"  (bar {row['bar']}{', missed' if value > row['bar'] else ''})"
        )
        text.append(f"{row['n']:>6}  {row['mapping']:<11} {value:>6.3f}  {label}{verdict}")
    return text


def main() -> None:
    """Measure, print, and write JSON if requested."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="the two shortest lengths, one thread, no memory"
    )
    parser.add_argument("--n", type=int, nargs="+", default=[512, 1024, 2048, 4096], dest="lengths")
    parser.add_argument("--scores", nargs="+", choices=SCORES, default=list(SCORES))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--mappings", nargs="+", choices=MAPPINGS, default=list(MAPPINGS))
    parser.add_argument("--no-memory", action="store_false", dest="memory")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--peak", nargs=3, metavar=("PATH", "MAPPING", "N"), help=argparse.SUPPRESS)
    options = vars(parser.parse_args())
    path, asked = options.pop("json"), options.pop("peak")
    if asked:
        print(peak(asked[0], asked[1], int(asked[2])))
        return
    rows = measure(**options)
    print("\n".join(lines(rows)))
    if path:
        write_atomically(path, json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
