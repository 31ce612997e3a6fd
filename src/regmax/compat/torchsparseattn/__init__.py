"""The names of torchsparseattn 0.2, the code published with the paper, on regmax's kernels.

It calls `alpha` and `beta` what is `lam` here, takes rows of one or two dimensions, and `lengths` instead of a mask.
Its oscarmax is the paper's composition of two steps, and `Oscarmax` here computes the same; `regmax.oscarmax` is exact.
"""

from regmax.compat.torchsparseattn.fused import Fusedmax, FusedProxFunction
from regmax.compat.torchsparseattn.oscar import Oscarmax, OscarProxFunction
from regmax.compat.torchsparseattn.sparsemax import Sparsemax, SparsemaxFunction

__all__ = [
    "FusedProxFunction",
    "Fusedmax",
    "OscarProxFunction",
    "Oscarmax",
    "Sparsemax",
    "SparsemaxFunction",
]
