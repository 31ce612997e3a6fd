"""Half the squared p-norm: sq-pnorm-max."""

from dataclasses import dataclass
from typing import Any, ClassVar

from regmax.arrays import namespace, zero_deleted
from regmax.regularizers.base import Bounds, KernelRegularizer


@dataclass(frozen=True)
class SquaredPNorm(KernelRegularizer):
    """Omega(y) = 1/2 ||y||_p^2, whose mapping is sq-pnorm-max: sparse like sparsemax, but smoother (Section 3.1).

    Args:
        p: in (1, 2].

    Example:
        >>> import numpy as np, regmax
        >>> round(float(regmax.SquaredPNorm(p=1.5).value(np.array([0.5, 0.5]))), 6)
        0.31498
    """

    p: Any = 1.5
    bounds: ClassVar[Bounds] = Bounds("sqpnormmax(..., p=...)", above=1.0, up_to=2.0)
    strength: ClassVar[str] = "p"
    kernel: ClassVar[str] = "sqpnormmax"

    def value(self, y: Any, mask: Any = None) -> Any:
        xp, y = namespace(y), zero_deleted(y, mask)
        # A zero is kept away from the power: its second derivatives there are infinite or undefined.
        zero = y == 0
        powers = xp.where(zero, 0.0, xp.where(zero, 1.0, abs(y)) ** self.p)
        return (0.5 * powers.sum(-1, keepdims=True) ** (2 / self.p))[..., 0]
