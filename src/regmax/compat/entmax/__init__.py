"""Those names of entmax 1.3 that are mappings of this framework, computed by regmax.

sparsemax and its loss run on regmax's kernel, which is exact: `k` and `n_iter`, the settings of entmax's algorithms,
are accepted and ignored. The other alphas use the general solver (`regmax.SmoothRegularizer`), which gives the same
numbers but is slower than entmax.
"""

from typing import NoReturn

from regmax.compat.entmax.losses import (
    Entmax15Loss,
    EntmaxBisectLoss,
    SparsemaxBisectLoss,
    SparsemaxLoss,
    entmax15_loss,
    entmax_bisect_loss,
    sparsemax_bisect_loss,
    sparsemax_loss,
)
from regmax.compat.entmax.mappings import entmax15, entmax_bisect, sparsemax, sparsemax_bisect
from regmax.compat.entmax.modules import Entmax15, EntmaxBisect, Sparsemax, SparsemaxBisect

__all__ = [
    "Entmax15",
    "Entmax15Loss",
    "EntmaxBisect",
    "EntmaxBisectLoss",
    "Sparsemax",
    "SparsemaxBisect",
    "SparsemaxBisectLoss",
    "SparsemaxLoss",
    "entmax15",
    "entmax15_loss",
    "entmax_bisect",
    "entmax_bisect_loss",
    "sparsemax",
    "sparsemax_bisect",
    "sparsemax_bisect_loss",
    "sparsemax_loss",
]

_WITHOUT_COUNTERPART = {
    "normmax_bisect": "a norm that is not squared is not strongly convex; `regmax.sqpnormmax` squares it",
    "budget_bisect": "its weights sum to the budget, and every mapping of regmax sums to 1",
}


def __getattr__(name: str) -> NoReturn:
    for prefix, reason in _WITHOUT_COUNTERPART.items():
        if name.lower().replace("_", "").startswith(prefix.replace("_", "")):
            raise AttributeError(f"`regmax.compat.entmax` has no {name}: {reason}. Keep entmax's for it.")
    raise AttributeError(f"module 'regmax.compat.entmax' has no attribute {name!r}")
