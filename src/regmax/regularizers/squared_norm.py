"""Half the squared Euclidean norm: sparsemax."""

from dataclasses import dataclass
from typing import Any, ClassVar

from regmax.arrays import zero_deleted
from regmax.regularizers.base import KernelRegularizer


@dataclass(frozen=True)
class SquaredNorm(KernelRegularizer):
    """Omega(y) = 1/2 ||y||^2, whose mapping is sparsemax, the projection onto the simplex (Section 2.3).

    Example:
        >>> import numpy as np, regmax
        >>> float(regmax.SquaredNorm().value(np.array([0.5, 0.5])))
        0.25
    """

    kernel: ClassVar[str] = "sparsemax"

    def value(self, y: Any, mask: Any = None) -> Any:
        y = zero_deleted(y, mask)
        return 0.5 * (y * y).sum(-1)
