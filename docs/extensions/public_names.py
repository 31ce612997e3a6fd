"""Check that every public name has a page, and every function and class an example."""

import inspect
from importlib import import_module
from types import ModuleType
from typing import Any

from sphinx.util import logging

MODULES = (
    "regmax",
    "regmax.nn",
    "regmax.plots",
    "regmax.integrations",
    "regmax.integrations.transformers",
    "regmax.compat",
    "regmax.compat.entmax",
    "regmax.compat.torchsparseattn",
)

logger = logging.getLogger(__name__)


def check(app: Any, env: Any) -> None:
    """Warn about every undocumented name; a warning fails a strict build."""
    written = env.domains["py"].objects
    for module in MODULES:
        for name in import_module(module).__all__:
            value = getattr(import_module(module), name)
            if f"{module}.{name}" not in written and name != "__version__":
                logger.warning("public name without a page: %s.%s", module, name)
            if callable(value) and not isinstance(value, ModuleType) and ">>>" not in inspect.getdoc(value):
                logger.warning("public name without an example: %s.%s", module, name)


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("env-check-consistency", check)
    return {"parallel_read_safe": True}
