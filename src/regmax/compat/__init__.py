"""Ways in: the names and call shapes of other libraries, computed by regmax.

Change the import and keep the code: `from regmax.compat.torchsparseattn import Fusedmax`, or
`from regmax.compat.entmax import sparsemax`.
"""

from importlib import import_module
from typing import Any

__all__ = ["entmax", "torchsparseattn"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"regmax.compat.{name}")
    raise AttributeError(f"module 'regmax.compat' has no attribute {name!r}")
