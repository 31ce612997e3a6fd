"""Squared norm plus total variation: fusedmax."""

from dataclasses import dataclass
from typing import Any, ClassVar

from regmax.arrays import kept_first, zero_deleted
from regmax.regularizers.base import Bounds, KernelRegularizer


@dataclass(frozen=True)
class FusedLasso(KernelRegularizer):
    """Omega(y) = 1/2 ||y||^2 + lam sum_i |y_{i+1} - y_i|, whose mapping is fusedmax (Section 3.2).

    Args:
        lam: how strongly neighbours are fused; at least 0.

    Example:
        >>> import numpy as np, regmax
        >>> float(regmax.FusedLasso(lam=0.5).value(np.array([0.5, 0.5, 0.0])))
        0.5
    """

    lam: Any = 0.1
    bounds: ClassVar[Bounds] = Bounds("fusedmax(..., lam=...)", above=0.0, closed=True)
    strength: ClassVar[str] = "lam"
    kernel: ClassVar[str] = "fusedmax"

    def value(self, y: Any, mask: Any = None) -> Any:
        y = zero_deleted(y, mask)
        steps = abs(y[..., 1:] - y[..., :-1])
        if mask is not None:
            # Neighbours are the kept ones: the chain closes over what is deleted.
            chain, kept = kept_first(y, mask)
            steps = abs(chain[..., 1:] - chain[..., :-1]) * kept[..., 1:]
        return (0.5 * (y * y).sum(-1, keepdims=True) + self.lam * steps.sum(-1, keepdims=True))[..., 0]
