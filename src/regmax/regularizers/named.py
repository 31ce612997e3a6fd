"""The regularizers of the named mappings, each as its formula."""

from dataclasses import dataclass
from typing import Any, ClassVar

from regmax.arrays import exponential_ratio, kept_first, namespace, ranks, sort_descending, zero_deleted
from regmax.regularizers.base import Bounds, KernelRegularizer


@dataclass(frozen=True, eq=False)
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
        # 0 log 0 = 0: zeros are replaced by 1, at which the term is 0 and its gradient finite.
        safe = namespace(y).where(y == 0, 1.0, y)
        return (safe * namespace(y).log(safe)).sum(-1)


@dataclass(frozen=True, eq=False)
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


@dataclass(frozen=True, eq=False)
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
            # Deletion changes adjacency: the neighbours of a deleted position become adjacent.
            chain, kept = kept_first(y, mask)
            steps = abs(chain[..., 1:] - chain[..., :-1]) * kept[..., 1:]
        return (0.5 * (y * y).sum(-1, keepdims=True) + self.lam * steps.sum(-1, keepdims=True))[..., 0]


@dataclass(frozen=True, eq=False)
class Oscar(KernelRegularizer):
    """Omega(y) = 1/2 ||y||^2 + lam sum_{i<j} max(|y_i|, |y_j|), whose mapping is oscarmax (Section 3.2).

    The penalty is lam sum_k (d - k) |y|_(k), |y| sorted decreasingly: it grows with d, so use
    `lam = c / d` for rows of different lengths.

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
        # A deleted position is in no pair: each one lowers every coefficient d - k by one.
        d = y.shape[-1] if mask is None else xp.broadcast_to(mask, y.shape).sum(-1, keepdims=True)
        pairs = ((d - ranks(y)) * sort_descending(abs(y))).sum(-1, keepdims=True)
        return (0.5 * (y * y).sum(-1, keepdims=True) + self.lam * pairs)[..., 0]


@dataclass(frozen=True, eq=False)
class OscarComposition(Oscar):
    """Oscar with the approximate mapping that the paper published: OSCAR's proximal operator, then sparsemax.

    The paper's errata says that this composition is not oscarmax. It is kept for reproducing the paper's numbers;
    its Jacobian is not symmetric, and `duality_gap` bounds its suboptimality. max_Omega is that of `Oscar`.

    Args:
        lam: how strongly weights are clustered; at least 0.

    Example:
        >>> import numpy as np, regmax
        >>> x = np.array([1.0, 0.9, -0.5])
        >>> print(regmax.regularized_argmax(regmax.OscarComposition(lam=0.2), x))
        [0.5 0.5 0. ]
    """

    kernel: ClassVar[str] = "oscar_composition"
    steps: ClassVar[tuple[str, ...]] = ("prox_oscar", "sparsemax")

    @property
    def exact(self) -> Oscar:
        return Oscar(self.lam)


@dataclass(frozen=True, eq=False)
class SquaredPNorm(KernelRegularizer):
    """Omega(y) = 1/2 ||y||_p^2, whose mapping is sqpnormmax: sparse like sparsemax, but smoother (Section 3.1).

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
        # The power is not applied to zeros, where its second derivative is infinite or undefined.
        zero = y == 0
        powers = xp.where(zero, 0.0, xp.where(zero, 1.0, abs(y)) ** self.p)
        return (0.5 * powers.sum(-1, keepdims=True) ** (2 / self.p))[..., 0]


@dataclass(frozen=True, eq=False)
class NegativeTsallisEntropy(KernelRegularizer):
    """Omega(y) = (sum_i y_i^alpha - 1) / (alpha (alpha - 1)), whose mapping is alpha-entmax.

    alpha = 1, the limit sum_i y_i log y_i, is softmax; alpha = 2 is sparsemax. It is evaluated as
    sum_i y_i (y_i^(alpha - 1) - 1) / (alpha (alpha - 1)), which is the same on the simplex and exact near alpha = 1.

    Args:
        alpha: in [1, 2].

    Example:
        >>> import numpy as np, regmax
        >>> round(float(regmax.NegativeTsallisEntropy(alpha=1.5).value(np.array([0.5, 0.5]))), 6)
        -0.390524
    """

    alpha: Any = 1.5
    bounds: ClassVar[Bounds] = Bounds("entmax(..., alpha=...)", above=1.0, up_to=2.0, closed=True)
    strength: ClassVar[str] = "alpha"
    kernel: ClassVar[str] = "entmax"

    def value(self, y: Any, mask: Any = None) -> Any:
        xp, y = namespace(y), zero_deleted(y, mask)
        # Zeros are replaced by 1, at which the term is 0 and its gradient finite.
        safe = xp.where(y == 0, 1.0, y)
        logarithm = xp.log(safe)
        terms = safe * logarithm * exponential_ratio((self.alpha - 1) * logarithm)
        return (terms.sum(-1, keepdims=True) / self.alpha)[..., 0]
