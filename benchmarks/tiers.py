"""What each tier of the core is worth: `python benchmarks/tiers.py [--repeats N] [--lengths D ...]`.

Times every mapping with the core restricted to one tier (the scalar one serves the rows that it leaves), as multiples
of the time with the normal choice: forward / backward, one thread, float32. csrc/README.md quotes the output.
"""

from __future__ import annotations

import argparse

import numpy as np

from regmax.kernels import native
from regmax.timing import in_turns

SCORES = 2**18
TIERS = ("lanes", "whole", "scalar")
STRENGTHS = {"sparsemax": None, "fusedmax": 0.1, "oscarmax": "0.4 / d", "sqpnormmax": 1.5, "entmax": 1.5}


def calls(kernel: str, x: np.ndarray, theta: float) -> dict[str, object]:
    """The two passes for every tier, each with the bits that training keeps."""
    d = x.shape[1]
    words = np.zeros((2, len(x), (d + 63) // 64), np.uint64)
    y, out = np.empty_like(x), np.empty_like(x)
    v = np.random.default_rng(1).standard_normal(x.shape).astype(x.dtype)
    code = native.CODES[kernel]

    def addresses(*arrays: np.ndarray) -> list[int]:
        return [array.ctypes.data for array in arrays]

    def argmax(tier: str | None) -> None:
        native.force_tier(tier)
        native.core.argmax(4, code, *addresses(x, y), *x.shape, theta, 1.0, 1, *addresses(*words))

    def product(tier: str | None) -> None:
        native.force_tier(tier)
        arrays, bits = addresses(y, v, out), addresses(*words)
        native.core.jacobian_product(4, code, *arrays, *x.shape, theta, 1.0, 1, *bits)

    passes = {"forward": argmax, "backward": product}
    return {
        f"{name} {tier}": lambda run=run, tier=tier: run(tier)
        for name, run in passes.items()
        for tier in (None, *TIERS)
    }


def main() -> None:
    """Print a line for each kind of rows, length and mapping."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--lengths", type=int, nargs="+", default=[32, 128, 512, 2048])
    options = parser.parse_args()
    print(f"{native.instruction_set()}; forward/backward relative to the normal choice of tiers")
    for kind, scale in (("N(0, 1)", 1.0), ("flat", 0.02)):
        for d in options.lengths:
            x = (scale * np.random.default_rng(0).standard_normal((SCORES // d, d))).astype(np.float32)
            for kernel, strength in STRENGTHS.items():
                theta = 0.4 / d if isinstance(strength, str) else float(strength or 0)
                times = {
                    name: np.min(own)
                    for name, own in in_turns(calls(kernel, x, theta), rounds=options.repeats).items()
                }
                native.force_tier(None)
                ratios = "  ".join(
                    f"{tier} {times[f'forward {tier}'] / times['forward None']:.1f}/"
                    f"{times[f'backward {tier}'] / times['backward None']:.1f}"
                    for tier in TIERS
                )
                print(f"{kind:8s} d = {d:5d}  {kernel:11s} {ratios}", flush=True)


if __name__ == "__main__":
    main()
