"""What Omega is: one file for each regularizer."""

from regmax.regularizers.base import KernelRegularizer, Regularizer
from regmax.regularizers.fused_lasso import FusedLasso
from regmax.regularizers.negative_entropy import NegativeEntropy
from regmax.regularizers.oscar import Oscar, OscarComposition
from regmax.regularizers.smooth import SmoothRegularizer
from regmax.regularizers.squared_norm import SquaredNorm
from regmax.regularizers.squared_pnorm import SquaredPNorm

__all__ = [
    "FusedLasso",
    "KernelRegularizer",
    "NegativeEntropy",
    "Oscar",
    "OscarComposition",
    "Regularizer",
    "SmoothRegularizer",
    "SquaredNorm",
    "SquaredPNorm",
]
