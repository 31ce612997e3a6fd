"""The version, and which versions of everything else this installation runs on."""

import os
import platform
import sys
from importlib import metadata

from regmax.kernels import native

__version__ = "0.1.0"


def show_versions() -> None:
    """Print the versions that a bug report needs, and which core computes.

    Example:
        >>> show_versions()  # doctest: +ELLIPSIS
        regmax       0.1.0
        Python       3...
    """
    for name, value in _versions().items():
        print(f"{name:<12} {value}")


def _versions() -> dict[str, str]:
    return {
        "regmax": __version__,
        "Python": f"{platform.python_version()} ({platform.system()}, {platform.machine()})",
        "NumPy": _installed("numpy"),
        "torch": _installed("torch"),
        "core": _core(),
        "threads": _threads(),
    }


def _installed(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"


def _core() -> str:
    if native.available():
        return f"native core: {native.instruction_set()}"
    return "no native core: tensor operations"


def _threads() -> str:
    # Asked of torch only where it already runs: reporting a version is no reason to import it.
    torch = sys.modules.get("torch")
    count = torch.get_num_threads() if torch is not None else os.cpu_count()
    return str(count)
