"""Regularizers Omega as frozen data: the base classes, and the regularizers of the named mappings."""

from regmax.regularizers.base import KernelRegularizer, Regularizer
from regmax.regularizers.named import (
    FusedLasso,
    NegativeEntropy,
    NegativeTsallisEntropy,
    Oscar,
    OscarComposition,
    SquaredNorm,
    SquaredPNorm,
)
from regmax.regularizers.smooth import SmoothRegularizer

__all__ = [
    "FusedLasso",
    "KernelRegularizer",
    "NegativeEntropy",
    "NegativeTsallisEntropy",
    "Oscar",
    "OscarComposition",
    "Regularizer",
    "SmoothRegularizer",
    "SquaredNorm",
    "SquaredPNorm",
]
