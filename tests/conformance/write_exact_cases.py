"""Write exact_cases.json, the exact results that any implementation can be run against.

    PYTHONPATH=tests/support python tests/conformance/write_exact_cases.py

A case has `name`, `kernel`, `theta` (null if the kernel has none) and `dtype`, the scores `x` (to be rounded to that
dtype; null is a deleted position), and its result as `groups` and `values`: position i has the weight
values[groups[i] - 1], or exactly zero if groups[i] is 0. Positions of one group have equal weights, bit by bit; groups
are segments for fusedmax and prox_tv1d, for the others sets of equal weights. Values are the exact ones rounded to
float64. `distances` are those of the scores, pooled by fusedmax and oscarmax, to the threshold below which weights are
zero, to three digits (null at deleted positions; no field if there is no threshold, as for softmax). Short cases also
have a direction `v` and the Jacobian's `product` with it at the weights rounded to `dtype`, rounded to float64; and, if
there is a strength, `strength_slope`, d/dtheta grad Omega(y) at every position, and `strength_gradient`, the derivative
of <v, y> in theta, which is minus their inner product.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import exact
import mpmath
import numpy as np
from exact_rows import KINDS, THETAS, row

PATH = Path(__file__).with_name("exact_cases.json")
SIZES = (2, 3, 5, 8, 12)
LONG = {
    ("sparsemax", None): [(300, "flat", "float32"), (1024, "tent", "float64")],
    ("fusedmax", 2.0**-13): [(4096, "peak", "float64"), (2048, "peak", "float32")],
    ("fusedmax", 0.125): [(300, "flat", "float32"), (1000, "sawtooth", "float64"), (600, "ties", "float32")],
    ("oscarmax", 2.0**-12): [(2048, "ramp", "float32"), (1024, "tent", "float64")],
    ("oscarmax", 2.0**-7): [(300, "flat", "float32"), (600, "ties", "float64")],
    ("sqpnormmax", 1.5): [(300, "stairs", "float32"), (2048, "peak", "float64"), (600, "ties", "float32")],
    ("entmax", 1.5): [(300, "stairs", "float32"), (2048, "peak", "float64"), (600, "ties", "float32")],
    ("softmax", None): [(600, "ties", "float32"), (2048, "peak", "float64")],
    ("prox_tv1d", 0.125): [(600, "sawtooth", "float32"), (600, "ties", "float64")],
    ("prox_oscar", 2.0**-12): [(1024, "ramp", "float32"), (600, "ties", "float64")],
}


# Rows that were once wrong somewhere.
FOUND = (
    ("fusedmax", 0.1, [0.1, 0.0, 0.2]),
    ("fusedmax", 0.05, [0.4017405876378675, 0.22406090048738317, 0.22406090048738317, -0.3796846375603691]),
    ("fusedmax", 0.25, [-0.4012, -1e16, -0.0065, 0.0104]),
    ("sparsemax", None, [1.0, -1e308, -1e308, 0.9]),
    ("sqpnormmax", 1.5, [0.0] * 8 + [-0.25] * 3),
    ("prox_tv1d", 0.25, [0.5, 1e16, 0.25, -0.125, -1e16, 0.0625]),
)


def case(kernel: str, theta: float | None, kind: str, d: int, dtype: str, deleted: bool) -> dict[str, Any]:
    """A row of some kind and its exact result."""
    x = row(kind, 0, d, theta, np.dtype(dtype).type)
    name = f"{kernel} {theta} {kind} {d} {dtype}{' deleted' * deleted}"
    return exact_case(name, kernel, theta, x, dtype, deleted)


def exact_case(
    name: str, kernel: str, theta: float | None, x: np.ndarray, dtype: str, deleted: bool
) -> dict[str, Any]:
    """A row, some of it deleted, and its exact result."""
    d = len(x)
    rng = np.random.default_rng([d, *name.encode()])
    kept = rng.random(d) < 0.7 if deleted else np.ones(d, bool)
    kept[rng.integers(d)] = True
    scores = x[kept].tolist()
    y = exact.solve(kernel, scores, theta)
    labels = exact.labels(kernel, y, scores)
    values = dict(zip(labels, map(float, y), strict=True))
    values.pop(0, None)
    groups = np.zeros(d, int)
    groups[kept] = labels
    result: dict[str, Any] = {
        "name": name,
        "kernel": kernel,
        "theta": theta,
        "dtype": dtype,
        "x": [_shortest(s, dtype) if keep else None for s, keep in zip(x, kept, strict=True)],
        "groups": groups.tolist(),
        "values": [values[label] for label in sorted(values)],
    }
    if (exactly := exact.distances(kernel, scores, y, theta)) is not None:
        rounded = iter([float(f"{float(distance):.3g}") for distance in exactly])
        result["distances"] = [next(rounded) if keep else None for keep in kept]
    if d <= max(SIZES):
        number = Fraction if kernel in exact.RATIONAL else mpmath.mpf
        rounded = [number(float(np.dtype(dtype).type(float(weight)))) for weight in y]
        v = rng.integers(-9, 10, size=d)
        product = np.zeros(d)
        product[kept] = [float(p) for p in exact.product(kernel, rounded, v[kept].tolist(), theta)]
        result |= {"v": v.tolist(), "product": product.tolist()}
    return with_strength_gradient(result)


def with_strength_gradient(result: dict[str, Any]) -> dict[str, Any]:
    """The case with its derivative in theta, in 50 digits."""
    kernel, theta = result["kernel"], result["theta"]
    if "v" not in result or not theta or kernel not in exact.SLOPE:  # at lam = 0 ties make a kink
        return result
    weights = [0.0, *result["values"]]
    kept = [i for i, score in enumerate(result["x"]) if score is not None]
    y = [mpmath.mpf(weights[result["groups"][i]]) for i in kept]
    slope = exact.SLOPE[kernel](y, mpmath.mpf(theta))
    gradient = -mpmath.fsum(g * result["product"][i] for g, i in zip(slope, kept, strict=True))
    full = [0.0] * len(result["x"])
    for i, g in zip(kept, slope, strict=True):
        full[i] = float(g)
    return result | {"strength_slope": full, "strength_gradient": float(gradient)}


def _shortest(score: float, dtype: str) -> float:
    """The number with the fewest digits that rounds to `score` in `dtype`."""
    return float(str(np.dtype(dtype).type(score)))


def cases() -> list[dict[str, Any]]:
    """Every kernel, strength and kind of row once, types and lengths in turns; then the long rows."""
    short = []
    for kernel, thetas in THETAS.items():
        for turn, theta in enumerate(thetas):
            for number, kind in enumerate(KINDS):
                d = SIZES[(number + turn) % len(SIZES)]
                dtype = ("float64", "float32")[(number // len(SIZES) + number + turn) % 2]
                short.append(case(kernel, theta, kind, d, dtype, deleted=False))
                other = SIZES[(number + turn + 2) % len(SIZES)]
                flipped = "float32" if dtype == "float64" else "float64"
                short.append(case(kernel, theta, kind, other, flipped, deleted=number % 5 == turn % 5))
    # Neighbours that repeat, and multiples of lam: where equal weights are hardest to keep equal.
    tied = [
        exact_case(
            f"{kernel} {theta} {kind} {d} {dtype} {seed}",
            kernel,
            theta,
            row(kind, seed, d, theta, np.dtype(dtype).type),
            dtype,
            False,
        )
        for kernel, theta in (("fusedmax", 0.1), ("fusedmax", 0.05), ("oscarmax", 0.05), ("prox_tv1d", 0.1))
        for kind, d in (("repeats", 16), ("multiples", 16), ("tenths", 9))
        for dtype in ("float64", "float32")
        for seed in range(1, 6)
    ]
    long = [
        case(kernel, theta, kind, d, dtype, deleted=False)
        for (kernel, theta), rows in LONG.items()
        for d, kind, dtype in rows
    ]
    found = [
        exact_case(f"{kernel} {theta} found {number}", kernel, theta, np.array(x), "float64", False)
        for number, (kernel, theta, x) in enumerate(FOUND)
    ]
    return short + tied + long + found


def main() -> None:
    """Write the file, one case to a line."""
    lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases())
    PATH.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
