"""Adversarial rows for `adversarial.py`, which stress sorting, pooling, screening and rounding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Array = np.ndarray
# Lengths around the widths of vectors, bit words and blocks of rows, and long ones.
SIZES = sorted({2**k + shift for k in range(1, 9) for shift in (-1, 0, 1)} | {100, 512, 1000, 2048, 4096})
NAMES = {
    "sparsemax": (),
    "fusedmax": ("lam",),
    "oscarmax": ("lam",),
    "sqpnormmax": ("p",),
    "entmax": ("alpha",),
    "prox_tv1d": ("lam",),
    "prox_oscar": ("lam",),
}
THETAS = {
    "sparsemax": (0.0,),
    "sqpnormmax": (1.01, 1.1, 1.5, 1.5, 1.9, 2.0),
    "entmax": (1.0, 1.01, 1.25, 1.5, 1.5, 1.9, 2.0),
}
LAMS = (0.0, 1e-6, 0.01, 0.1, 0.1, 1.0, 1e3)


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
        """The strong convexity constant of Omega: rounding errors of the scores grow by its inverse."""
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
    """A random kernel, strength and length with matching rows, some with scores of -inf or a mask."""
    kernel, kind = str(rng.choice(list(NAMES))), str(rng.choice(list(KINDS)))
    theta, d = float(rng.choice(THETAS.get(kernel, LAMS))), int(rng.choice(SIZES))
    n = int(np.clip(32768 // d, 8, 2048))
    x = KINDS[kind](rng, n, d, theta if 0 < theta < 1e3 else 0.1)
    scale = rng.choice((1e-6, 1e-3, 1, 1, 1, 1e3, 1e6), size=(n, 1))
    offset = rng.choice((0, 0, 1, -1e3, 1e6), size=(n, 1))
    x = (scale * x + offset).astype(np.float32)
    x[rng.random((n, d)) < rng.choice((0, 0, 0.1, 0.9))] = -np.inf
    keep = rng.random((n, d)) < rng.random((n, 1)) if rng.random() < 0.4 else None
    return Batch(kernel, theta, kind, x, keep)


def group_means(y: Array, v: Array, order: Array) -> Array:
    """The mean of v over adjacent equal y, in the given order of each row."""
    sorted_y, sorted_v = np.take_along_axis(y, order, axis=1), np.take_along_axis(v, order, axis=1)
    starts = np.ones(y.shape, dtype=bool)
    starts[:, 1:] = np.diff(sorted_y, axis=1) != 0
    group = np.cumsum(starts.ravel()) - 1
    means = np.bincount(group, sorted_v.ravel()) / np.bincount(group)
    out = np.empty_like(v)
    np.put_along_axis(out, order, means[group].reshape(y.shape), axis=1)
    return out


def delete(batch: Batch, *arrays: Array) -> tuple[Array, ...]:
    """The mask of kept positions, and the compacted rows in float64: deleted positions move to the end."""
    alive = np.isfinite(batch.x) & (True if batch.keep is None else batch.keep)
    order = np.argsort(~alive, axis=1, kind="stable")
    compact = [np.take_along_axis(a, order, axis=1) for a in (alive, *arrays)]
    return compact[0], *(np.where(compact[0], a.astype(np.float64), 0) for a in compact[1:])
