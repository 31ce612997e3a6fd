"""`torch.compiler.allow_in_graph` without importing the compiler, which takes as long as importing torch itself."""

import importlib.util
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar

import torch

F = TypeVar("F", bound=Callable[..., Any])
_COMPILER = "torch._dynamo"
_waiting: list[Callable[..., Any]] = []


def allow_in_graph(function: F) -> F:
    """Have the compiler call the function instead of tracing it; it is told when it is imported."""
    if _COMPILER in sys.modules:
        return torch.compiler.allow_in_graph(function)
    if not _waiting:
        sys.meta_path.insert(0, _AfterImport())
    _waiting.append(function)
    return function


class _AfterImport(MetaPathFinder):
    """Finds the compiler as the other finders do, and registers the functions once it has been executed."""

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        if name != _COMPILER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                for function in _waiting:
                    torch.compiler.allow_in_graph(function)

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec
