"""Regularized max operators for sparse and structured attention.

NumPy arrays and torch tensors alike; torch is imported only when a tensor or a module is first touched.
"""

from importlib import import_module
from typing import Any

from regmax.functional import (
    duality_gap,
    fusedmax,
    oscarmax,
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
from regmax.regularizers import (
    FusedLasso,
    NegativeEntropy,
    Oscar,
    OscarComposition,
    Regularizer,
    SmoothRegularizer,
    SquaredNorm,
    SquaredPNorm,
)
from regmax.versions import __version__, show_versions

__all__ = [
    "FusedLasso",
    "Groups",
    "NegativeEntropy",
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
    "fusedmax",
    "groups",
    "integrations",
    "nn",
    "oscarmax",
    "plots",
    "project_simplex",
    "prox_owl",
    "prox_tv1d",
    "regularized_argmax",
    "regularized_max",
    "replace_attention",
    "show_versions",
    "softmax",
    "sparsemax",
    "sqpnormmax",
]

# What needs torch or matplotlib is imported when it is first touched.
_LAZY_MODULES = ("compat", "integrations", "nn", "plots")
_LAZY_NAMES = {"attention": "regmax.sparse_attention", "replace_attention": "regmax.nn.replace"}


def __getattr__(name: str) -> Any:
    if name in _LAZY_MODULES:
        return import_module(f"regmax.{name}")
    if name in _LAZY_NAMES:
        return getattr(import_module(_LAZY_NAMES[name]), name)
    raise AttributeError(f"module 'regmax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
