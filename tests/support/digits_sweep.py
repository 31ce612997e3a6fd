"""Millions of float32 rows through each tier of the core, judged by the core's own float64.

    python tests/support/digits_sweep.py --rows 10000000 --seed 1

The exact sweep (exact_sweep.py) judges both types by the specification, which takes a millisecond a row. This one takes
microseconds, and so finds what is wrong with one row in a million: weights that are off by more than 4 units in the
last place of the row's largest weight, and a support that is not the one of float64.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, NamedTuple

import numpy as np
from fronts import forced_tier

from regmax.kernels import native

Array = np.ndarray
BATCH_SCORES, BATCH_ROWS = 1 << 18, 4000
MOST_UNITS = 4.0
TIERS = (None, "lanes", "whole", "levels")
# The ranges of strengths, and those that have kernels of their own.
STRENGTHS: dict[str, tuple[tuple[float, float], tuple[float, ...]]] = {
    "fusedmax": ((0.001, 3), (0.1,)),
    "oscarmax": ((0.0003, 0.2), (0.01,)),
    "sqpnormmax": ((1.01, 1.95), (1.5, 1.25)),
    "entmax": ((1.02, 1.95), (1.5, 1.25)),
}
KERNELS = ("sparsemax", *STRENGTHS)


class Batch(NamedTuple):
    """Rows of one kind, kernel and strength."""

    kernel: str
    theta: float | None
    x: Array


def draw(rng: np.random.Generator, longest: int) -> Batch:
    """Rows of one random length and size: normal, with heavy tails, on a grid, or below a single peak."""
    kernel = str(rng.choice(KERNELS))
    theta = None
    if kernel in STRENGTHS:
        (low, high), fixed = STRENGTHS[kernel]
        least = 1.0 if low > 1 else 0.0
        drawn = least + np.exp(rng.uniform(np.log(low - least), np.log(high - least)))
        theta = float(rng.choice(fixed)) if rng.random() < 0.5 else float(drawn)
    d = int(np.exp(rng.uniform(np.log(2), np.log(longest))))
    size = np.exp(rng.uniform(np.log(0.002), np.log(10)))
    x = size * rng.normal(size=(min(BATCH_ROWS, BATCH_SCORES // d), d))
    kind = rng.integers(5)
    if kind <= 1:
        x *= np.exp(rng.uniform(0, 2) * rng.normal(size=x.shape))
    elif kind == 2:
        x = np.round(8 * x) / 8
    elif kind == 3:
        x = -(np.abs(x) ** rng.uniform(0.3, 3))
        x[:, 0] = 0
    return Batch(kernel, theta, x.astype(np.float32))


def units_off(y: Array, exact: Array) -> Array:
    """By how many units in the last place of its largest weight each row is off."""
    return np.abs(y - exact).max(axis=1) / np.spacing(exact.max(axis=1).astype(y.dtype)).astype(np.float64)


def faults(y: Array, exact: Array) -> dict[str, Array]:
    """Which rows have which fault."""
    return {
        "values": ~(units_off(y, exact) <= MOST_UNITS),
        "support": ((y > 0) != (exact.astype(y.dtype) > 0)).any(axis=1),
    }


def main(arguments: Any = None) -> int:
    """Draw, judge, count; return 1 if anything is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="how many rows to draw at least")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--longest", type=int, default=300, help="the greatest length")
    parser.add_argument("--instruction-set", help="avx512, avx2 or baseline; the best one by default")
    parser.add_argument("--save", help="a folder for the first wrong row of each batch")
    options = parser.parse_args(arguments)
    if options.instruction_set:
        native.use_instruction_set(options.instruction_set)
    rng = np.random.default_rng(options.seed)
    rows = wrong = 0
    worst: dict[tuple[str, str], float] = {}
    while rows < options.rows:
        batch = draw(rng, options.longest)
        rows += len(batch.x)
        exact = native.argmax(batch.kernel, batch.x.astype(np.float64), None, batch.theta)
        for tier in TIERS:
            with forced_tier(tier):
                y = native.argmax(batch.kernel, batch.x, None, batch.theta)
            key = (batch.kernel, tier or "any tier")
            worst[key] = max(worst.get(key, 0.0), float(units_off(y, exact).max()))
            for fault, found in faults(y, exact).items():
                if not found.any():
                    continue
                wrong += int(found.sum())
                print(
                    f"{fault}: {found.sum()} of {len(y)} rows, d = {y.shape[1]}, theta = {batch.theta}, {key}"
                )
                if options.save:
                    np.save(f"{options.save}/{batch.kernel}-{batch.theta}-{wrong}.npy", batch.x[found][0])
    print(f"{rows} rows, seed {options.seed}: {wrong} faults")
    for (kernel, tier), units in sorted(worst.items()):
        print(f"{kernel:12} {tier:10} at most {units:.2f} units")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
