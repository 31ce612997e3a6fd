"""Regularized max operators for sparse and structured attention.

Functions take NumPy arrays or torch tensors; torch is imported only when a tensor or a module is first used.
"""

from typing import TYPE_CHECKING

from regmax import lazy
from regmax.functional import (
    duality_gap,
    entmax,
    fusedmax,
    oscarmax,
    project_capped_simplex,
    project_simplex,
    prox_owl,
    prox_tv1d,
    regularized_argmax,
    regularized_max,
    softmax,
    sparsemax,
    sqpnormmax,
)
from regmax.groups import Groups, groups
from regmax.losses import fenchel_young_loss, linear_fenchel_young_loss
from regmax.regularizers import (
    FusedLasso,
    NegativeEntropy,
    NegativeTsallisEntropy,
    Oscar,
    OscarComposition,
    Regularizer,
    SmoothRegularizer,
    SquaredNorm,
    SquaredPNorm,
)
from regmax.sampling import perturbed_argmax, sample
from regmax.versions import __version__, show_versions

__all__ = [
    "FusedLasso",
    "Groups",
    "KeyScreen",
    "NegativeEntropy",
    "NegativeTsallisEntropy",
    "Oscar",
    "OscarComposition",
    "Regularizer",
    "SmoothRegularizer",
    "SquaredNorm",
    "SquaredPNorm",
    "__version__",
    "attention",
    "compat",
    "duality_gap",
    "entmax",
    "fenchel_young_loss",
    "fusedmax",
    "groups",
    "integrations",
    "linear_fenchel_young_loss",
    "nn",
    "oscarmax",
    "perturbed_argmax",
    "plots",
    "project_capped_simplex",
    "project_simplex",
    "prox_owl",
    "prox_tv1d",
    "record_attention",
    "regularized_argmax",
    "regularized_max",
    "replace_attention",
    "sample",
    "show_versions",
    "softmax",
    "sparsemax",
    "sqpnormmax",
]

# Names that need torch or matplotlib are imported on first use. Type checkers see the imports but no `__getattr__`,
# with which they would accept any name.
if TYPE_CHECKING:
    from regmax import compat, integrations, nn, plots
    from regmax.nn.recording import record_attention
    from regmax.nn.replace import replace_attention
    from regmax.sparse_attention import KeyScreen, attention
else:
    __getattr__, __dir__ = lazy.attributes(
        __name__,
        {
            "KeyScreen": "regmax.sparse_attention",
            "attention": "regmax.sparse_attention",
            "compat": "regmax.compat",
            "integrations": "regmax.integrations",
            "nn": "regmax.nn",
            "plots": "regmax.plots",
            "record_attention": "regmax.nn.recording",
            "replace_attention": "regmax.nn.replace",
        },
    )
