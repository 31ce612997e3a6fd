"""Package attributes that are imported on first use and then cached."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def attributes(
    package: str, places: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package.

    Args:
        package: its name.
        places: the module that defines each lazy name; for a submodule, the submodule itself.
    """

    def getattribute(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = import_module(places[name])
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            message = f"`{package}.{name}` needs PyTorch: install it with `pip install torch`."
            raise ModuleNotFoundError(message, name="torch") from None
        value = module if places[name] == f"{package}.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    def directory() -> list[str]:
        return sorted(sys.modules[package].__all__)

    return getattribute, directory
