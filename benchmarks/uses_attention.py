"""Time `regmax.attention` in the ways that people use it, against torch's `scaled_dot_product_attention` (softmax).

    python benchmarks/uses_attention.py [--rounds 9] [--only WORD ...] [--instruction-set avx2] [--json FILE]

Each use takes turns with torch's attention on the same tensors in one process, on one thread. A time is the CPU time
of the thread, so that other load matters little; a ratio is that of medians. The bars are upper bounds for an idle
machine with AVX-512.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from attention import inputs
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import regmax
from regmax.files import write_atomically
from regmax.kernels import native

Run = Callable[[], object]


@dataclass(frozen=True)
class Use:
    """A call to time, torch's call, and the upper bound of the ratio."""

    name: str
    bar: float
    ours: Run
    torchs: Run


def train(attend: Callable[..., Any], tensors: tuple[Tensor, ...], learned: tuple[Tensor, ...] = ()) -> Run:
    """Forward + backward, with the gradients of the tensors and of what is learned."""
    out_grad = torch.randn(tensors[2].shape, generator=torch.Generator().manual_seed(1))

    def run() -> None:
        out = attend(*tensors)
        out = out[0] if isinstance(out, tuple) else out
        torch.autograd.grad(out, (*tensors, *learned), out_grad.to(out.dtype))

    return run


def training(n: int = 1024) -> list[Use]:
    """8 heads of 64, attention-like scores, forward + backward."""
    tensors = inputs(n, "attention")
    softmax = train(scaled_dot_product_attention, tensors)
    causal = train(partial(scaled_dot_product_attention, is_causal=True), tensors)
    attend = partial(regmax.attention, mapping="fusedmax")
    lam, small, per_head, gamma = (
        torch.full(shape, value, requires_grad=True)
        for shape, value in (((), 0.1), ((), 1 / n), ((8, 1, 1), 0.1), ((8, 1, 1), 1.0))
    )
    fixed = torch.linspace(0.05, 0.2, 8).reshape(8, 1, 1)
    bias = torch.zeros(8, n, n, requires_grad=True)
    mask = torch.ones(n, n, dtype=torch.bool).tril()
    program = torch.compile(attend, fullgraph=True)
    annealed = regmax.nn.Fusedmax()
    regmax.nn.AnnealGamma(annealed, start=1.5, end=1.0, steps=10)

    def use(name: str, bar: float, *learned: Tensor, torchs: Run = softmax, **options: Any) -> Use:
        return Use(name, bar, train(partial(attend, **options), tensors, learned), torchs)

    def cast(*qkv: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return attend(*qkv)

    return [
        use("a name", 0.2),
        use("a module", 0.22, mapping=regmax.nn.Fusedmax()),
        use("an annealed module", 0.22, mapping=annealed),
        use("lam learned", 0.3, lam, mapping=regmax.FusedLasso(lam=lam)),
        use("lam learned, per head", 0.3, per_head, mapping=regmax.FusedLasso(lam=per_head)),
        use("gamma learned, per head", 0.3, gamma, mapping=partial(regmax.fusedmax, gamma=gamma)),
        use("lam per head", 0.25, mapping=regmax.FusedLasso(lam=fixed)),
        use("oscarmax, lam learned", 0.3, small, mapping=regmax.Oscar(lam=small)),
        Use("compiled", 0.25, train(program, tensors), softmax),
        Use("autocast to bfloat16", 0.3, train(cast, tensors), softmax),
        use("dense weights", 0.6, return_weights=True),
        use("sparse weights", 0.25, return_weights="sparse"),
        use("gradient of the bias", 0.8, bias, bias=bias),
        use("is_causal", 0.2, is_causal=True, torchs=causal),
        use("a dense causal mask", 0.2, mask=mask, torchs=causal),
    ]


def decoding() -> list[Use]:
    """One or four queries against a long cache, forward."""
    uses = []
    for heads, kv_heads, queries, keys, e, bar in (
        (32, 32, 1, 4096, 128, 0.35),
        (8, 8, 1, 32768, 64, 0.45),
        (32, 8, 1, 4096, 128, 0.35),
        (32, 8, 4, 4096, 128, 0.35),
    ):
        generator = torch.Generator().manual_seed(keys)
        k, v = (torch.randn(1, kv_heads, keys, e, generator=generator) for _ in range(2))
        q = torch.randn(1, heads, queries, e, generator=generator)
        gqa = {"enable_gqa": kv_heads != heads}
        name = f"decode: {queries} of {heads} heads, {kv_heads} x {keys} keys of {e}"
        ours = partial(regmax.attention, q, k, v, mapping="fusedmax", **gqa)
        uses.append(Use(name, bar, ours, partial(scaled_dot_product_attention, q, k, v, **gqa)))
    return uses


def inference() -> list[Use]:
    """12 heads of 32 with padding, forward, as in a small BERT."""
    uses = []
    for n, bar in ((32, 0.9), (128, 0.7)):
        generator = torch.Generator().manual_seed(n)
        q, k, v = (torch.randn(1, 12, n, 32, generator=generator) for _ in range(3))
        mask = (torch.arange(n) < n - 3).reshape(1, 1, 1, n)
        ours = partial(regmax.attention, q, k, v, mapping="sparsemax", mask=mask)
        torchs = partial(scaled_dot_product_attention, q, k, v, attn_mask=mask)
        uses.append(Use(f"inference: n = {n}, padding", bar, _without_grad(ours), _without_grad(torchs)))
    return uses


def _without_grad(run: Run) -> Run:
    def wrapped() -> None:
        with torch.no_grad():
            run()

    return wrapped


def measure(use: Use, rounds: int) -> dict[str, Any]:
    """Medians of CPU milliseconds, and their ratio."""
    use.ours(), use.torchs()
    start = time.thread_time()
    use.torchs()
    repeats = max(1, int(0.01 / max(time.thread_time() - start, 1e-6)))  # at least 10 ms
    times: dict[Run, list[float]] = {use.ours: [], use.torchs: []}
    for _ in range(rounds):
        for run, taken in times.items():
            start = time.thread_time()
            for _ in range(repeats):
                run()
            taken.append(1e3 * (time.thread_time() - start) / repeats)
    ours, torchs = (float(np.median(taken)) for taken in times.values())
    return {"use": use.name, "ratio": ours / torchs, "bar": use.bar, "ms": ours, "torch_ms": torchs}


def main() -> None:
    """Measure, print, and write JSON if requested."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", nargs="+", default=[""], help="words, one of which a use's name contains")
    parser.add_argument("--instruction-set", help="avx512, avx2 or baseline, instead of the machine's best")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.instruction_set:
        native.use_instruction_set(options.instruction_set)
    rows = []
    for use in (*training(), *decoding(), *inference()):
        if any(word in use.name for word in options.only):
            row = measure(use, options.rounds)
            missed = ", missed" if row["ratio"] > row["bar"] else ""
            times = f"{row['ms']:.3g} of {row['torch_ms']:.3g} ms"
            print(f"{row['ratio']:6.3f}  {row['use']:<44} {times}  (bar {row['bar']}{missed})", flush=True)
            rows.append(row)
    if options.json:
        write_atomically(options.json, json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
