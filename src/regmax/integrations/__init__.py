"""Integrations with other libraries: `regmax.integrations.transformers` adds the mappings to Hugging Face models."""

from importlib import import_module
from typing import Any

__all__ = ["transformers"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"regmax.integrations.{name}")
    raise AttributeError(f"module 'regmax.integrations' has no attribute {name!r}")
