"""The base classes of the regularizers: the paper's function Omega as frozen data."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from regmax.arrays import NUMBER, as_number, is_array, is_floating, same


class Regularizer(ABC):
    """A strongly convex function Omega on the simplex, which gives max_Omega and its gradient Pi_Omega.

    Example:
        >>> import numpy as np, regmax
        >>> omega = regmax.SquaredNorm()
        >>> isinstance(omega, regmax.Regularizer), float(omega.value(np.array([0.6, 0.8])))
        (True, 0.5)
    """

    @abstractmethod
    def value(self, y: Any) -> Any:
        """Omega(y), along the last dimension."""


@dataclass(frozen=True, eq=False)
class KernelRegularizer(Regularizer):
    """A regularizer whose mapping a kernel computes.

    It has at most one field, its `strength` (`lam`, `p` or `alpha`): a number, or an array that broadcasts against
    the scores with size 1 along `dim`. The kernels call it theta.
    """

    kernel: ClassVar[str]
    # The kernels to apply in turn, if no single one computes the mapping. The strength goes to the first.
    steps: ClassVar[tuple[str, ...]] = ()
    strength: ClassVar[str | None] = None
    bounds: ClassVar["Bounds | None"] = None

    def __post_init__(self) -> None:
        if self.bounds is not None:
            self.bounds.check(self.theta)

    @classmethod
    def made(cls, theta: Any) -> "KernelRegularizer":
        """The regularizer at a strength; `theta` is None for a regularizer without strength."""
        return cls() if cls.strength is None else cls(**{cls.strength: theta})

    @classmethod
    def accepts(cls, theta: Any) -> bool:
        """Whether `theta` is a plain number in bounds, or None for a regularizer without strength."""
        return theta is None if cls.bounds is None else type(theta) is float and cls.bounds.contains(theta)

    @abstractmethod
    def value(self, y: Any, mask: Any = None) -> Any:
        """Omega(y), along the last dimension; positions where `mask` is False are deleted."""

    @property
    def theta(self) -> Any:
        """The value of the strength, or None for a regularizer without strength."""
        return None if self.strength is None else getattr(self, self.strength)

    def with_theta(self, theta: Any) -> "KernelRegularizer":
        """The same regularizer at another strength."""
        return self.made(theta)

    @property
    def call(self) -> str:
        """The call of the mapping in error messages."""
        return "regularized_argmax(...)" if self.steps else f"{self.kernel}(...)"

    @property
    def exact(self) -> "KernelRegularizer":
        """The regularizer whose argmax attains max_Omega: another one if this mapping is an approximation."""
        return self

    # Explicit, because the comparison that a dataclass generates fails for a strength that is an array.
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KernelRegularizer) or type(self) is not type(other):
            return NotImplemented
        return same(self.theta, other.theta)

    def __hash__(self) -> int:
        theta = as_number(self.theta)
        return hash((type(self), tuple(theta.shape) if is_array(theta) else theta))


@dataclass(frozen=True)
class Bounds:
    """The bounds of a strength: above < theta <= up_to, or above <= theta <= up_to if `closed`."""

    call: str
    above: float
    up_to: float = math.inf
    closed: bool = False

    def check(self, theta: Any) -> None:
        """Raise unless `theta` is a number in bounds, or a floating-point array.

        The entries of an array are not read: front ends check its minimum and maximum if reading is cheap.
        """
        if type(theta) is float and self.contains(theta):
            return
        if is_array(theta):
            if not is_floating(theta):
                raise TypeError(
                    f"`{self.call}` must be a number or a floating-point array. Got {theta.dtype}."
                )
        elif isinstance(theta, bool) or not isinstance(theta, NUMBER):
            raise TypeError(
                f"`{self.call}` must be a number or a floating-point array. Got {type(theta).__name__}."
            )
        elif not self.contains(theta):
            raise ValueError(f"`{self.call}` must be {self}. Got {theta}.")

    def contains(self, theta: float) -> bool:
        """Whether a number lies in bounds."""
        over = theta >= self.above if self.closed else theta > self.above
        # Only comparisons, which NaN fails and a compiler can trace.
        return over and theta <= self.up_to and theta < math.inf

    def __str__(self) -> str:
        if self.up_to < math.inf:
            return f"in {'[' if self.closed else '('}{self.above:g}, {self.up_to:g}]"
        return "non-negative and finite" if self.closed else "positive and finite"
