"""Adversarial rows through the native core: `python tests/support/adversarial.py --rows N [--seed S] [--seconds T]`.

Every batch of float32 rows of one length goes through one kernel, forward and backward. The result is checked against
properties of all rows: no crash, no hang, weights on the simplex with a duality gap of rounding size, exact zeros,
groups that are bitwise equal, and a Jacobian product that averages over them. It needs only NumPy, so that it also
runs on a library built with sanitizers (REGMAX_LIBRARY).
"""

from __future__ import annotations

import argparse
import faulthandler
import sys
import time
from collections import Counter
from collections.abc import Callable

import adversarial_prox
import certificates
import numpy as np
from adversarial_rows import Batch, delete, group_means, random_batch

from regmax.kernels import native

Array = np.ndarray
HANG = 120.0  # seconds for one batch, which takes milliseconds


def forward_faults(batch: Batch, y: Array) -> list[str]:
    """The faults of the weights."""
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
    # Only differences to the maximum matter; scores that can have weight lie within 1 + O(lam) of it.
    x = np.where(alive, x - np.max(x, axis=1, keepdims=True, where=alive, initial=-np.inf), 0)[live]
    lam = batch.parameters.get("lam", 0)
    # Half an ulp of every weight, which sum to one, times the steepest slope of the penalty: OSCAR's grows with d.
    steepest = lam * x.shape[1] if batch.kernel == "oscarmax" else lam
    rounding = 1e-6 * (1 + lam) + np.finfo(np.float32).eps * steepest
    y = weights[live] / weights[live].sum(axis=1, keepdims=True)
    excess = certificates.gap(batch.kernel, x, y, alive[live], **batch.parameters)
    if np.any(np.abs(excess) > rounding):
        faults.append(f"a duality gap of {np.abs(excess).max():.1e}")
    return faults


def expected_product(batch: Batch, y: Array, v: Array) -> Array:
    """J v of compacted rows: the mean of the group minus the mean of the support; for p < 2 the formula in y."""
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
    if batch.kernel == "entmax":
        s = np.where(support, y ** (2 - batch.theta), 0)
        total = np.maximum(s.sum(axis=1, keepdims=True), 1e-300)
        return s * (v - np.sum(s * v, axis=1, keepdims=True) / total)
    centred = np.where(support, v - np.sum(v * support, axis=1, keepdims=True) / size, 0)
    if batch.kernel not in ("fusedmax", "oscarmax") or batch.theta == 0:
        return centred
    order = (
        np.argsort(-y, axis=1, kind="stable") if batch.kernel == "oscarmax" else np.arange(y.shape[1])[None]
    )
    return np.where(support, group_means(y, centred, np.broadcast_to(order, y.shape)), 0)


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
    """The core called as from torch: with the bits `support` and `joined`, one strength per row, two threads."""

    def __init__(self, batch: Batch) -> None:
        n, d = batch.x.shape
        self.batch, self.y = batch, np.empty_like(batch.x)
        self.support, self.joined = (np.zeros((n, (d + 63) // 64), dtype=np.uint64) for _ in range(2))
        self._call(native.core.argmax, batch.x, self.y)

    def product(self, v: Array) -> Array:
        """J v, read off the bits."""
        out = np.empty_like(v)
        self._call(native.core.jacobian_product, self.y, v, out)
        return out

    def _call(self, function: Callable[..., None], *arrays: Array) -> None:
        keep, (n, d) = self.batch.keep, self.batch.x.shape
        mask = (None, 1, 1) if keep is None else (keep.ctypes.data, n, 1)
        thetas = np.full(n, self.batch.theta)
        addresses = (array.ctypes.data for array in arrays)
        bits = self.support.ctypes.data, self.joined.ctypes.data
        code = native.CODES[self.batch.kernel]
        function(4, code, *addresses, n, d, 0.0, 1.0, 2, *bits, *mask, thetas.ctypes.data)


def unpack(words: Array, d: int) -> Array:
    """Bits of 64-bit words as booleans, one per position."""
    return np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")[:, :d].astype(bool)


def judge(batch: Batch, rng: np.random.Generator) -> list[str]:
    """All faults of one batch."""
    if batch.kernel.startswith("prox"):
        return adversarial_prox.faults(batch, rng)
    y = native.argmax(batch.kernel, batch.x, batch.keep, batch.theta)
    faults = forward_faults(batch, y)
    if faults:
        return faults
    exact = native.argmax(batch.kernel, batch.x.astype(np.float64), batch.keep, batch.theta)
    size = (1 + batch.parameters.get("lam", 0)) / batch.strong
    if (error := np.abs(y - exact).max()) > 2e-6 * size:
        faults.append(f"float32 differs from float64 by {error:.1e}")
    bits = Bits(batch)
    if not np.allclose(bits.y, y, rtol=0, atol=1e-6 * size):
        faults.append("weights depend on how the core is called")
    if not np.array_equal(unpack(bits.support, y.shape[1]), bits.y != 0):
        faults.append("support bits are wrong")
    # In the forward -inf and the mask delete alike; a backward that reads y must be given both.
    keep = np.isfinite(batch.x) & (True if batch.keep is None else batch.keep)
    v = rng.normal(size=y.shape).astype(np.float32)
    faults += backward_faults(batch, y, v, native.jacobian_product(batch.kernel, y, v, keep, batch.theta))
    faults += [f"with bits, {fault}" for fault in backward_faults(batch, bits.y, v, bits.product(v))]
    return faults


def run(rows: int, seed: int, seconds: float) -> Counter[str]:
    """Check batches until `rows` rows or the time limit are reached; returns the faults with their counts."""
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
