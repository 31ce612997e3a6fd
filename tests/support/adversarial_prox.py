"""Checks of the proximal operators on adversarial rows: float64 by optimality conditions, float32 by float64.

z = argmin 1/2 ||z - x||^2 + P(z) exactly if x - z is a subgradient of P at z: within P's dual ball, and on its
boundary if z is not zero.
"""

from __future__ import annotations

import numpy as np
from adversarial_rows import Batch, delete, group_means

from regmax.kernels import native

Array = np.ndarray


def tv_residual(x: Array, z: Array, alive: Array, lam: float) -> Array:
    """u_i = sum of x - z up to i: |u| <= lam, 0 at the row's end, and lam |z_i - z_i+1| = u_i (z_i - z_i+1)."""
    u = np.cumsum(x - z, axis=1)
    step = np.where(alive[:, 1:], -np.diff(z, axis=1), 0)
    outside = np.maximum(np.abs(u) - lam, 0).max(axis=1)
    slack = np.sum(lam * np.abs(step) - u[:, :-1] * step, axis=1)
    # Groups with nearly the same value may differ by an ulp, with any u between them: such a step is ignored.
    weight = np.sum(np.abs(step), axis=1) + 1e-6 * np.abs(x).max(axis=1) + 1e-30
    return np.maximum(np.maximum(outside, np.abs(u[:, -1])), np.abs(slack) / weight)


def oscar_residual(x: Array, z: Array, alive: Array, lam: float) -> Array:
    """The k largest |x - z| sum to at most lam ((d-1) + ... + (d-k)), and <x - z, z> is the penalty."""
    d, rank = alive.sum(axis=1, keepdims=True), np.arange(1, z.shape[1] + 1)
    weights = np.where(rank <= d, lam * (d - rank), 0)
    largest = -np.sort(-np.abs(x - z), axis=1)
    outside = np.maximum(np.cumsum(largest - weights, axis=1), 0).max(axis=1)
    slack = np.sum(weights * -np.sort(-np.abs(z), axis=1), axis=1) - np.sum((x - z) * z, axis=1)
    return np.maximum(outside, np.abs(slack) / np.maximum(np.abs(z).max(axis=1), 1e-300))


def expected_product(batch: Batch, z: Array, v: Array) -> Array:
    """J v of compacted rows: means over groups of equal neighbours, or of equal absolute values with signs."""
    if batch.theta == 0:
        return v
    if batch.kernel == "prox_tv1d":
        return group_means(z, v, np.broadcast_to(np.arange(z.shape[1]), z.shape))
    order = np.argsort(-np.abs(z), axis=1, kind="stable")
    means = np.sign(z) * group_means(np.abs(z), np.sign(z) * v, order)
    # The smallest number has no penalty: a zero that is the only one moves with its score.
    is_free = (z == 0) & ((z == 0).sum(axis=1, keepdims=True) == 1)
    return np.where(is_free, v, means)


def faults(batch: Batch, rng: np.random.Generator) -> list[str]:
    """All faults of one batch."""
    exact = native.argmax(batch.kernel, batch.x.astype(np.float64), batch.keep, batch.theta)
    z = native.argmax(batch.kernel, batch.x, batch.keep, batch.theta)
    if not (np.all(np.isfinite(z)) and np.all(np.isfinite(exact))):
        return ["a result is not finite"]
    alive, x, z64, z32 = delete(batch, batch.x, exact, z)
    size = np.abs(x).max(axis=1) + 1e-30
    residual = tv_residual if batch.kernel == "prox_tv1d" else oscar_residual
    rounding = 1e-14 * x.shape[1] * (size + batch.theta * x.shape[1])
    found = []
    if np.any(residual(x, z64, alive, batch.theta) > rounding):
        found.append("float64 is not optimal")
    if np.any(np.abs(z64 - z32).max(axis=1) > 5e-7 * size):
        found.append("float32 differs from float64")
    return found + backward_faults(batch, z, z32, rng)


def backward_faults(batch: Batch, z: Array, compact: Array, rng: np.random.Generator) -> list[str]:
    """The faults of J v, read off the float32 result."""
    keep = np.isfinite(batch.x) & (True if batch.keep is None else batch.keep)
    v = rng.normal(size=z.shape).astype(np.float32)
    product = native.jacobian_product(batch.kernel, z, v, keep, batch.theta)
    if np.any(product[~keep]):
        return ["a Jacobian product is not zero at a deleted position"]
    alive, direction, ours = delete(batch, v, product)
    values = np.where(alive, compact, np.nan)  # a deleted position equals no other
    error = np.abs(np.where(alive, ours - expected_product(batch, values, direction), 0)).max()
    return [f"a Jacobian product is off by {error:.1e}"] if error > 2e-5 else []
