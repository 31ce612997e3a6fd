"""Time and memory of `linear_fenchel_young_loss` relative to `linear` + `cross_entropy`, forward and backward.

    python benchmarks/losses.py [--classes 32000 128000] [--rows 2048] [--features 512] [--threads 1]

The two are timed in turns; the figures are the smallest of each: processor time for one thread, else wall clock. Peak
memory is that of a process that runs one step, above its memory before the step, and includes the gradients. "trained"
are states close to their target's row of the weight, so that a few weights are nonzero; "start" and "flat" are small
states, at which some hundred weights are, or most.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

import regmax

SCALES = {"trained": 1.0, "start": 0.005, "flat": 2e-6}


def problem(kind: str, classes: int, rows: int, features: int) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, weight and targets."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(classes, features, generator=generator)
    target = torch.randint(classes, (rows,), generator=generator)
    hidden = SCALES[kind] * torch.randn(rows, features, generator=generator) * 2 / features**0.5
    if kind == "trained":
        hidden += 8 * weight[target] / features
    return hidden.requires_grad_(), weight.requires_grad_(), target


def cross_entropy(hidden: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    return functional.cross_entropy(functional.linear(hidden, weight), target)


def step(loss: Callable[..., Tensor], arguments: tuple[Tensor, ...]) -> float:
    """The seconds of one step."""
    for tensor in arguments:
        tensor.grad = None
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    loss(*arguments).backward()
    return clock() - start


def memory(name: str, pid: str = "self") -> float:
    """VmRSS or VmHWM in megabytes."""
    with open(f"/proc/{pid}/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def losses(mapping: str) -> dict[str, Callable[..., Tensor]]:
    def ours(hidden: Tensor, weight: Tensor, target: Tensor) -> Tensor:
        return regmax.linear_fenchel_young_loss(hidden, weight, target, mapping=mapping)

    return {"cross entropy": cross_entropy, mapping: ours}


def peak(options: argparse.Namespace, kind: str, classes: int, name: str) -> float:
    """The peak memory of one step, in megabytes, measured in a process that does nothing else."""
    sizes = [str(classes), str(options.rows), str(options.features), str(options.threads)]
    command = [sys.executable, __file__, "--peak", kind, *sizes, name]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_peak(kind: str, classes: str, rows: str, features: str, threads: str, name: str) -> None:
    """The peak of this process; the first, small step loads what every step needs."""
    torch.set_num_threads(int(threads))
    loss = losses("sparsemax" if name == "cross entropy" else name)[name]
    step(loss, problem(kind, 100, 64, int(features)))
    arguments = problem(kind, int(classes), int(rows), int(features))
    before = memory("VmRSS")
    step(loss, arguments)
    print(memory("VmHWM") - before)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--classes", type=int, nargs="+", default=[32_000, 128_000])
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--mapping", default="sparsemax")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print("classes  scores   nonzeros  cross entropy  loss     time ratio  peak MB        memory ratio")
    for classes in options.classes:
        for kind in SCALES:
            arguments = problem(kind, classes, options.rows, options.features)
            with torch.no_grad():
                x = functional.linear(arguments[0][:64], arguments[1])
                nonzeros = float((regmax.regularized_argmax(options.mapping, x) != 0).sum(-1).float().mean())
            seconds = {name: float("inf") for name in losses(options.mapping)}
            for _ in range(options.repeat):
                for name, loss in losses(options.mapping).items():
                    seconds[name] = min(seconds[name], step(loss, arguments))
            del arguments, x
            peaks = {name: peak(options, kind, classes, name) for name in seconds}
            (theirs, ours), (most, least) = seconds.values(), peaks.values()
            print(
                f"{classes:<7}  {kind:<7}  {nonzeros:8.1f}  {theirs:11.2f} s  {ours:5.2f} s  {ours / theirs:10.3f}  "
                f"{most:6.0f} {least:6.0f}  {least / most:12.3f}"
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peak"]:
        print_peak(*sys.argv[2:])
    else:
        main()
