"""The version, and the versions of everything else that an installation runs on."""

import os
import platform
import sys
from importlib import import_module

__version__ = "0.1.0"


def show_versions() -> None:
    """Print the versions that a bug report needs, which core computes, and on how many threads.

    Example:
        >>> show_versions()  # doctest: +ELLIPSIS
        regmax   ...
        Python   3...
        NumPy    ...
        torch    ...
        core     ...
        threads  ...
    """
    for name, value in versions().items():
        print(f"{name:<8} {value}")


def versions() -> dict[str, str]:
    """What `show_versions` prints, by name."""
    return {
        "regmax": __version__,
        "Python": f"{platform.python_version()} ({platform.system()} {platform.machine()})",
        "NumPy": _version("numpy"),
        "torch": _version("torch"),
        "core": _core(),
        "threads": str(_threads()),
    }


def _version(module: str) -> str:
    """The version of what would really be imported, which need not be what an installer recorded."""
    try:
        return str(import_module(module).__version__)
    except ImportError:
        return "not installed"


def _core() -> str:
    # Imported here: `import regmax` reads this file, and need not load the core for a version number.
    from regmax.kernels import native

    if native.available():
        return f"native core: {native.instruction_set()}"
    return "no native core: tensor operations"


def _threads() -> int:
    """Torch's own setting where torch is in use; else one per core that this process may use."""
    if (torch := sys.modules.get("torch")) is not None:
        return int(torch.get_num_threads())
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
