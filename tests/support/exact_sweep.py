"""Random rows of every kind through each tier of the core and through tensor operations, judged by the specification.

    python tests/support/exact_sweep.py --rows 100000 --seed 1 --longest 3000

Prints, for each implementation, kernel and type, how many rows have which fault, and the first rows of each. Tensor
operations round their decisions: rows in which that changes a few last digits are counted, and are no faults.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import exact
import numpy as np
import torch
from exact_cases import Case, faults
from exact_rows import KINDS, row

from regmax.kernels import native, reference, tensors

Array = np.ndarray
COPIES = (1, 5, 40)  # one row, a few and many take different paths through the core
STRENGTHS: dict[str, tuple[float, ...]] = {
    "fusedmax": (0.0, 0.01, 0.05, 0.1, 0.25, 1.0, 3.0),
    "oscarmax": (0.0, 0.001, 0.01, 0.05, 0.125, 1.0),
    "sqpnormmax": (1.01, 1.03, 1.1, 1.25, 1.3, 1.5, 1.7, 1.9, 2.0),
    "entmax": (1.0, 1.01, 1.15, 1.25, 1.3, 4 / 3, 1.5, 1.7, 1.9, 2.0),
    "prox_tv1d": (0.01, 0.1, 0.25, 3.0),
    "prox_oscar": (0.001, 0.01, 0.125),
}
KERNELS = ("sparsemax", *STRENGTHS)
ROUNDED = "decided by rounding"
TIERS = (None, "lanes", "whole", "levels", "scalar")


def draw(rng: np.random.Generator, longest: int) -> Case:
    """A row of a random kind, length, kernel, strength and type, sometimes with deleted positions."""
    kernel = str(rng.choice(KERNELS))
    theta = float(rng.choice(STRENGTHS[kernel])) if kernel in STRENGTHS else None
    dtype = np.dtype(str(rng.choice(("float32", "float64"))))
    d = int(np.exp(rng.uniform(0, np.log(longest))))
    kind, seed = str(rng.choice(list(KINDS))), int(rng.integers(2**31))
    keep = rng.random(d) < (0.7 if rng.random() < 0.2 else 1.1)
    keep[rng.integers(d)] = True
    return made(kernel, theta, kind, seed, keep, dtype)


def made(kernel: str, theta: float | None, kind: str, seed: int, keep: Array, dtype: np.dtype) -> Case:
    """A row of one kind and its exact weights."""
    d = len(keep)
    x = row(kind, seed, d, theta, dtype.type).astype(dtype)
    weights = reference.argmax(kernel, x[None].astype(np.float64), keep[None], theta)[0]
    name = f"row({kind!r}, {seed}, {d}, {theta}, np.{dtype}) {kernel}{'' if keep.all() else ' masked'}"
    return Case(name, kernel, theta, x, keep, _groups(kernel, x, keep, weights), weights, None, None)


def _groups(kernel: str, x: Array, keep: Array, weights: Array) -> Array:
    """Positions with equal weights, as far as float64 tells weights apart."""
    groups = np.zeros(len(x), int)
    kept = weights[keep]
    if kernel in ("fusedmax", "prox_tv1d"):
        groups[keep] = np.cumsum(np.r_[True, kept[1:] != kept[:-1]])
    elif kernel in ("sparsemax", "sqpnormmax", "entmax"):
        groups[keep] = np.unique(x[keep], return_inverse=True)[1] + 1
    else:
        groups[keep] = np.unique(kept, return_inverse=True)[1] + 1
    return np.where((weights == 0) & (not kernel.startswith("prox")), 0, groups)


def by_core(case: Case, tier: str | None = None) -> Array:
    """All copies of the row, from calls with different numbers of rows."""
    results = []
    native.force_tier(tier)
    try:
        for n in COPIES:
            x, keep = np.tile(case.x, (n, 1)), np.tile(case.keep, (n, 1))
            results.append(native.argmax(case.kernel, x, None if keep.all() else keep, case.theta))
    finally:
        native.force_tier(None)
    return np.concatenate(results)


def by_tensors(case: Case) -> Array:
    """The row by tensor operations."""
    x, keep = torch.tensor(case.x[None]), torch.tensor(case.keep[None])
    return tensors.argmax(case.kernel, x, keep, case.theta).numpy()


def judge(case: Case, y: Array) -> list[str]:
    """The faults of a row's copies; that copies differ is one, too."""
    copies = list({copy.tobytes(): copy for copy in y}.values())
    found = {fault for copy in copies for fault in faults(case, copy)}
    if "equal weights" in found and case.kernel in exact.RATIONAL:
        # Weights that are equal in float64 may differ in the real numbers.
        groups, scores = case.groups.copy(), case.x[case.keep].astype(float).tolist()
        groups[case.keep] = exact.labels(case.kernel, exact.solve(case.kernel, scores, case.theta), scores)
        found = {fault for copy in copies for fault in faults(case._replace(groups=groups), copy)}
    return sorted(found | ({"copies differ"} if len(copies) > 1 else set()))


def judge_tensors(case: Case, y: Array) -> list[str]:
    """The same for tensor operations: up to 16 units in the last place of 1, or of the largest weight, are rounding."""
    unit = np.finfo(case.x.dtype).eps * max(1.0, float(np.abs(case.weights).max()))
    found = judge(case, y)
    return [ROUNDED] if found and np.abs(y - case.weights).max() <= 16 * unit else found


def main(arguments: Any = None) -> int:
    """Draw, judge, count; return 1 if anything is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000, help="how many rows to draw")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument(
        "--longest", type=int, default=300, help="the greatest length; lengths are spread evenly in log d"
    )
    parser.add_argument("--only", choices=("core", "tensors"), help="judge one implementation")
    parser.add_argument("--show", type=int, default=2, help="how many examples of each fault to name")
    options = parser.parse_args(arguments)
    implementations: dict[str, Callable[[Case], Array]] = {}
    if options.only != "tensors":
        implementations |= {f"core, {tier or 'any tier'}": partial(by_core, tier=tier) for tier in TIERS}
    if options.only != "core":
        implementations["tensors"] = by_tensors
    rng = np.random.default_rng(options.seed)
    counts: Counter[tuple[str, ...]] = Counter()
    for row_number in range(1, options.rows + 1):
        case = draw(rng, options.longest)
        for name, compute in implementations.items():
            for fault in (judge_tensors if name == "tensors" else judge)(case, compute(case)):
                key = (name, case.kernel, str(case.x.dtype), fault)
                counts[key] += 1
                if counts[key] <= options.show:
                    print(f"{name}: {fault}: {case.name}")
        if row_number % 5000 == 0:
            print(f"{row_number} rows: {number_of_faults(counts)} faults", flush=True)
    print(f"{options.rows} rows, seed {options.seed}: {number_of_faults(counts)} faults")
    for key, count in sorted(counts.items()):
        print(f"{count:6}  {' '.join(key)}")
    return int(number_of_faults(counts) > 0)


def number_of_faults(counts: Counter[tuple[str, ...]]) -> int:
    """How many were counted, without those that are rounding."""
    return sum(count for (*_, fault), count in counts.items() if fault != ROUNDED)


if __name__ == "__main__":
    sys.exit(main())
