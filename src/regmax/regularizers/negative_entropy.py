"""Negative entropy: softmax."""

from dataclasses import dataclass
from typing import Any, ClassVar

from regmax.arrays import namespace, zero_deleted
from regmax.regularizers.base import KernelRegularizer


@dataclass(frozen=True)
class NegativeEntropy(KernelRegularizer):
    """Omega(y) = sum_i y_i log y_i, whose max is logsumexp and whose mapping is softmax (Section 2.3).

    Example:
        >>> import numpy as np, regmax
        >>> bool(np.isclose(regmax.NegativeEntropy().value(np.array([0.5, 0.5])), -np.log(2)))
        True
    """

    kernel: ClassVar[str] = "softmax"

    def value(self, y: Any, mask: Any = None) -> Any:
        y = zero_deleted(y, mask)
        # 0 log 0 = 0: a zero is replaced by 1, whose term and whose gradient are finite.
        safe = namespace(y).where(y == 0, 1.0, y)
        return (safe * namespace(y).log(safe)).sum(-1)
