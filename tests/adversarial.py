"""Adversarial rows through the native core: `python tests/adversarial.py --rows 1000000 [--seed S] [--seconds T]`.

Every batch of float32 rows of one length goes through one kernel, forward and backward, and is judged by what must
hold whatever the rows are: no crash, no hang, weights on the simplex with a duality gap of rounding size, exact zeros,
groups that are bitwise equal, and a Jacobian product that averages over them. Needs NumPy only, so that it also runs
on a library built with sanitizers (REGMAX_LIBRARY).
"""

from __future__ import annotations

import argparse
import faulthandler
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import certificates
import numpy as np

from regmax.kernels import native

Array = np.ndarray
# Around the widths of vectors, words of bits and blocks of rows, and long ones.
SIZES = sorted({2**k + shift for k in range(1, 9) for shift in (-1, 0, 1)} | {100, 512, 1000, 2048, 4096})
KERNELS = ("sparsemax", "fusedmax", "oscarmax", "sqpnormmax")
NAMES = {"sparsemax": (), "fusedmax": ("lam",), "oscarmax": ("lam",), "sqpnormmax": ("p",)}
THETAS = {"sparsemax": (0.0,), "sqpnormmax": (1.01, 1.1, 1.5, 1.5, 1.9, 2.0)}
LAMS = (0.0, 1e-6, 0.01, 0.1, 0.1, 1.0, 1e3)
HANG = 120.0  # seconds for one batch, of milliseconds' work


@dataclass(frozen=True)
class Batch:
    """Rows of one length for one kernel; `keep` is None or the mask."""

    kernel: str
    theta: float
    kind: str
    x: Array
    keep: Array | None

    @property
    def parameters(self) -> dict[str, float]:
        """The strength by its name."""
        return dict.fromkeys(NAMES[self.kernel], self.theta)

    @property
    def strong(self) -> float:
        """How strongly convex Omega is: rounding errors of the scores grow by its inverse."""
        return self.theta - 1 if self.kernel == "sqpnormmax" else 1.0


def ramp(rng: np.random.Generator, n: int, d: int, lam: float) -> Array:
    return lam * np.arange(d) * rng.integers(-2, 3, size=(n, 1))


def sawtooth(rng: np.random.Generator, n: int, d: int, lam: float) -> Array:
    return lam * rng.integers(1, 5, size=(n, 1)) * (np.arange(d) % rng.integers(2, 9, size=(n, 1)))


KINDS = {
    "normal": lambda rng, n, d, lam: rng.normal(size=(n, d)),
    "flat": lambda rng, n, d, lam: 0.01 * rng.normal(size=(n, d)),
    "peaked": lambda rng, n, d, lam: 10 * rng.normal(size=(n, d)),
    "constant": lambda rng, n, d, lam: np.repeat(rng.normal(size=(n, 1)), d, axis=1),
    "ties": lambda rng, n, d, lam: rng.integers(0, 3, size=(n, d)) / 2,
    "multiples of lam": lambda rng, n, d, lam: lam * rng.integers(-8, 9, size=(n, d)),
    "segments": lambda rng, n, d, lam: np.repeat(rng.normal(size=(n, d)), 5, axis=1)[:, :d],
    "ramp": ramp,
    "sawtooth": sawtooth,
    "one ulp": lambda rng, n, d, lam: 1 + np.float32(1.2e-7) * rng.integers(0, 2, size=(n, d)),
    "walk": lambda rng, n, d, lam: lam * np.cumsum(rng.integers(-1, 2, size=(n, d)), axis=1),
}


def random_batch(rng: np.random.Generator) -> Batch:
    kernel, kind = str(rng.choice(KERNELS)), str(rng.choice(list(KINDS)))
    theta, d = float(rng.choice(THETAS.get(kernel, LAMS))), int(rng.choice(SIZES))
    n = int(np.clip(32768 // d, 8, 2048))
    x = KINDS[kind](rng, n, d, theta if 0 < theta < 1e3 else 0.1)
    x = x * rng.choice((1e-6, 1e-3, 1, 1, 1, 1e3, 1e6), size=(n, 1)) + rng.choice(
        (0, 0, 1, -1e3, 1e6), size=(n, 1)
    )
    x = x.astype(np.float32)
    x[rng.random((n, d)) < rng.choice((0, 0, 0.1, 0.9))] = -np.inf
    keep = rng.random((n, d)) < rng.random((n, 1)) if rng.random() < 0.4 else None
    return Batch(kernel, theta, kind, x, keep)


def delete(batch: Batch, *arrays: Array) -> tuple[Array, ...]:
    """The rows without their deleted positions, which move to the end, in float64; first of all, who is alive."""
    alive = np.isfinite(batch.x) & (True if batch.keep is None else batch.keep)
    order = np.argsort(~alive, axis=1, kind="stable")
    compact = [np.take_along_axis(a, order, axis=1) for a in (alive, *arrays)]
    return compact[0], *(np.where(compact[0], a.astype(np.float64), 0) for a in compact[1:])


def forward_faults(batch: Batch, y: Array) -> list[str]:
    """What is wrong with the weights, if anything."""
    alive, x, weights = delete(batch, batch.x, y)
    live = alive.any(axis=1)
    faults = []
    if not np.all(np.isfinite(y)) or np.any(np.signbit(y)):
        return ["weights are not finite and nonnegative"]
    if np.count_nonzero(y) != np.count_nonzero(weights) or np.any(y[~live]):
        faults.append("a deleted position has weight")
    if np.any(np.abs(weights[live].sum(axis=1) - 1) > 2e-6):
        faults.append("a row does not sum to one")
        return faults
    # Only differences to the maximum matter; all that can have weight lie within 1 + O(lam) of it.
    x = np.where(alive, x - np.max(x, axis=1, keepdims=True, where=alive, initial=-np.inf), 0)[live]
    size = 1 + batch.parameters.get("lam", 0)
    y = weights[live] / weights[live].sum(axis=1, keepdims=True)
    excess = certificates.gap(batch.kernel, x, y, alive[live], **batch.parameters)
    if np.any(np.abs(excess) > 4e-7 * size):
        faults.append(f"a duality gap of {np.abs(excess).max():.1e}")
    return faults


def expected_product(batch: Batch, y: Array, v: Array) -> Array:
    """J v of compacted rows: the group's mean minus the support's mean; for p < 2 the formula in y."""
    support = y > 0
    size = np.maximum(support.sum(axis=1, keepdims=True), 1)
    if batch.kernel == "sqpnormmax" and batch.theta < 2:
        p = batch.theta
        norm = np.sum(y**p, axis=1, keepdims=True) ** (1 / p) + ~support.any(axis=1, keepdims=True)
        scale = np.where(support, norm ** (p - 2) * y ** (2 - p), 0)
        mv, m1 = (
            (scale * w - (2 - p) / norm**2 * y * np.sum(y * w, axis=1, keepdims=True)) / (p - 1)
            for w in (v, support)
        )
        return mv - m1 * mv.sum(axis=1, keepdims=True) / np.maximum(m1.sum(axis=1, keepdims=True), 1e-300)
    centred = np.where(support, v - np.sum(v * support, axis=1, keepdims=True) / size, 0)
    if batch.kernel not in ("fusedmax", "oscarmax") or batch.theta == 0:
        return centred
    order = (
        np.argsort(-y, axis=1, kind="stable") if batch.kernel == "oscarmax" else np.arange(y.shape[1])[None]
    )
    return _group_means(y, centred, np.broadcast_to(order, y.shape))


def _group_means(y: Array, v: Array, order: Array) -> Array:
    """The mean of v over runs of equal y, in the given order of each row."""
    sorted_y, sorted_v = np.take_along_axis(y, order, axis=1), np.take_along_axis(v, order, axis=1)
    starts = np.ones(y.shape, dtype=bool)
    starts[:, 1:] = np.diff(sorted_y, axis=1) != 0
    group = np.cumsum(starts.ravel()) - 1
    means = np.bincount(group, sorted_v.ravel()) / np.bincount(group)
    out = np.empty_like(v)
    np.put_along_axis(out, order, means[group].reshape(y.shape), axis=1)
    return np.where(y > 0, out, 0)


def backward_faults(batch: Batch, y: Array, v: Array, product: Array) -> list[str]:
    """What is wrong with J v, if anything."""
    if not np.all(np.isfinite(product)):
        return ["a Jacobian product is not finite"]
    if np.any(product[y == 0]):
        return ["a Jacobian product is not zero where the weight is"]
    _, weights, direction, ours = delete(batch, y, v, product)
    expected = expected_product(batch, weights, direction)
    error = np.abs(ours - expected)
    return [f"a Jacobian product is off by {error.max():.1e}"] if np.any(error > 2e-5 / batch.strong) else []


class Bits:
    """The core called as the torch front end calls it: with the bits `support` and `joined`, on two threads."""

    def __init__(self, batch: Batch) -> None:
        n, d = batch.x.shape
        self.batch, self.y = batch, np.empty_like(batch.x)
        self.support, self.joined = (np.zeros((n, (d + 63) // 64), dtype=np.uint64) for _ in range(2))
        self._call(native.ARGMAX, batch.x, self.y, self.support, self.joined)

    def product(self, v: Array) -> Array:
        """J v, read off the bits."""
        out = np.empty_like(v)
        self._call(native.JACOBIAN_PRODUCT, self.y, self.support, self.joined, v, out)
        return out

    def _call(self, functions: Any, *arrays: Array) -> None:
        keep, (n, d) = self.batch.keep, self.batch.x.shape
        pointers = [array.ctypes.data for array in arrays]
        mask = (None, 1, 1) if keep is None else (keep.ctypes.data, n, 1)
        code = native.CODES[self.batch.kernel]
        native.check(functions[4](code, *pointers, n, d, *mask, self.batch.theta, None, 2))


def unpack(words: Array, d: int) -> Array:
    """Bits of 64-bit words as booleans, one per position."""
    return np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")[:, :d].astype(bool)


def judge(batch: Batch, rng: np.random.Generator) -> list[str]:
    """Everything that is wrong with one batch."""
    y = native.argmax(batch.kernel, batch.x, batch.keep, batch.theta)
    faults = forward_faults(batch, y)
    if faults:
        return faults
    exact = native.argmax(batch.kernel, batch.x.astype(np.float64), batch.keep, batch.theta)
    if (error := np.abs(y - exact).max()) > 2e-6 / batch.strong:
        faults.append(f"float32 differs from float64 by {error:.1e}")
    bits = Bits(batch)
    if not np.array_equal(bits.y, y):
        faults.append("weights depend on whether bits are asked for")
    if not np.array_equal(unpack(bits.support, y.shape[1]), y != 0):
        faults.append("support bits are wrong")
    # Deleted by -inf or by the mask is one thing forward; a backward that reads y must be told of both.
    keep = np.isfinite(batch.x) & (True if batch.keep is None else batch.keep)
    v = rng.normal(size=y.shape).astype(np.float32)
    faults += backward_faults(batch, y, v, native.jacobian_product(batch.kernel, y, v, keep, batch.theta))
    faults += [f"with bits, {fault}" for fault in backward_faults(batch, y, v, bits.product(v))]
    return faults


def run(rows: int, seed: int, seconds: float) -> Counter[str]:
    """Judge batches until `rows` rows or the time are used up; the faults found, counted."""
    start, done, batches, next_line = time.monotonic(), 0, 0, 0.0
    faults: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    while done < rows and time.monotonic() - start < seconds:
        rng = np.random.default_rng([seed, batches])
        batch = random_batch(rng)
        faulthandler.dump_traceback_later(HANG, exit=True)
        for fault in judge(batch, rng):
            faults[f"{batch.kernel}: {fault.split(' of ')[0].split(' by ')[0]}"] += 1
            print(
                f"batch {seed}/{batches}: {batch.kernel}({batch.theta:g}), {batch.kind}, {batch.x.shape}: {fault}"
            )
        faulthandler.cancel_dump_traceback_later()
        done, batches = done + len(batch.x), batches + 1
        seen[batch.kernel] += len(batch.x)
        if (elapsed := time.monotonic() - start) >= next_line:
            print(f"{done:>9,} rows, {elapsed:5.0f} s, {sum(faults.values())} faults", flush=True)
            next_line += 10
    counts = ", ".join(f"{kernel} {n:,}" for kernel, n in sorted(seen.items()))
    took = time.monotonic() - start
    print(f"{done:,} rows ({counts}), {batches} batches, {took:.0f} s: {sum(faults.values())} faults")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description="Adversarial rows through the native core.")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    arguments = parser.parse_args()
    if not native.available():
        print("The native core is not built.")
        return 2
    print(f"native core: {native.instruction_set()}")
    faults = run(arguments.rows, arguments.seed, arguments.seconds)
    for fault, count in faults.most_common():
        print(f"{count:>7} batches, {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
