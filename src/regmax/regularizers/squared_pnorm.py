"""Half the squared p-norm: sq-pnorm-max."""

from dataclasses import dataclass
from typing import Any, ClassVar

from regmax.arrays import zero_deleted
from regmax.regularizers.base import Bounds, KernelRegularizer


@dataclass(frozen=True)
class SquaredPNorm(KernelRegularizer):
    """Omega(y) = 1/2 ||y||_p^2, whose mapping is sq-pnorm-max: sparse like sparsemax (p = 2), but smoother (Section 3.1).

    Args:
        p: in (1, 2].

    Example:
        >>> import numpy as np, regmax
        >>> round(float(regmax.SquaredPNorm(p=1.5).value(np.array([0.5, 0.5]))), 6)
        0.31498
    """

    p: Any = 1.5
    bounds: ClassVar[Bounds] = Bounds("sqpnormmax(..., p=...)", above=1.0, up_to=2.0)
    kernel: ClassVar[str] = "sqpnormmax"

    def value(self, y: Any, mask: Any = None) -> Any:
        y = zero_deleted(y, mask)
        return (0.5 * (abs(y) ** self.p).sum(-1, keepdims=True) ** (2 / self.p))[..., 0]
