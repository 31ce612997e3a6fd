"""Squared norm plus OSCAR: oscarmax, exact, and the composition that the paper published."""

from dataclasses import dataclass
from typing import Any, ClassVar

from regmax.arrays import namespace, ranks, sort_descending, zero_deleted
from regmax.regularizers.base import Bounds, KernelRegularizer


@dataclass(frozen=True)
class Oscar(KernelRegularizer):
    """Omega(y) = 1/2 ||y||^2 + lam sum_{i<j} max(|y_i|, |y_j|), whose mapping is oscarmax (Section 3.2).

    The penalty is lam sum_k (d - k) |y|_(k), |y| sorted decreasingly: it grows with d, so a strength that suits
    every length is `lam = c / d`.

    Args:
        lam: how strongly weights are clustered; at least 0.

    Example:
        >>> import numpy as np, regmax
        >>> float(regmax.Oscar(lam=0.5).value(np.array([0.5, 0.5, 0.0])))
        1.0
    """

    lam: Any = 0.01
    bounds: ClassVar[Bounds] = Bounds("oscarmax(..., lam=...)", above=0.0, closed=True)
    strength: ClassVar[str] = "lam"
    kernel: ClassVar[str] = "oscarmax"

    def value(self, y: Any, mask: Any = None) -> Any:
        xp = namespace(y)
        y = zero_deleted(y, mask)
        # A deleted position forms no pairs: each one lowers every weight d - k by one.
        d = y.shape[-1] if mask is None else xp.broadcast_to(mask, y.shape).sum(-1, keepdims=True)
        pairs = ((d - ranks(y)) * sort_descending(abs(y))).sum(-1, keepdims=True)
        return (0.5 * (y * y).sum(-1, keepdims=True) + self.lam * pairs)[..., 0]


@dataclass(frozen=True)
class OscarComposition(Oscar):
    """Oscar, whose mapping is approximated as the paper published it: the prox of OSCAR, then the simplex.

    The paper's errata says that this composition is not oscarmax. It is kept for reproducing the paper's numbers;
    its Jacobian is not symmetric, and `duality_gap` tells how far from the optimum it is. max_Omega is `Oscar`'s.

    Args:
        lam: how strongly weights are clustered; at least 0.

    Example:
        >>> import numpy as np, regmax
        >>> x = np.array([1.0, 0.9, -0.5])
        >>> print(regmax.regularized_argmax(regmax.OscarComposition(lam=0.2), x))
        [0.5 0.5 0. ]
    """
