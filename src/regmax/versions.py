"""The version of regmax, and the versions of Python, NumPy, torch and the core."""

import os
import platform
import sys
from importlib import import_module

__version__ = "0.1.0"


def show_versions() -> None:
    """Print the versions that a bug report needs, the core in use and the number of threads.

    Example:
        >>> show_versions()  # doctest: +ELLIPSIS
        regmax   ...
        Python   3...
        NumPy    ...
        torch    ...
        core     ...
        triton   ...
        threads  ...
    """
    for name, value in versions().items():
        print(f"{name:<8} {value}")


def versions() -> dict[str, str]:
    """The values that `show_versions` prints, by name."""
    return {
        "regmax": __version__,
        "Python": f"{platform.python_version()} ({platform.system()} {platform.machine()})",
        "NumPy": _version("numpy"),
        "torch": _version("torch"),
        "core": _core(),
        "triton": _triton(),
        "threads": str(_threads()),
    }


def _version(module: str) -> str:
    """The version of the module that is imported, which may differ from the installer's record."""
    try:
        return str(import_module(module).__version__)
    except ImportError:
        return "not installed"


def _core() -> str:
    # Imported here, so that `import regmax`, which reads this file, does not load the core.
    from regmax.kernels import native

    if native.available():
        return f"native core: {native.instruction_set()}"
    return "no native core: tensor operations"


def _triton() -> str:
    from regmax.kernels import triton

    if not triton.installed():
        return "not installed: tensor operations on GPUs"
    used = "kernels for GPUs, experimental" if triton.available() else "switched off by REGMAX_TRITON"
    return f"{_version('triton')}: {used}"


def _threads() -> int:
    """The setting of torch if it is imported; otherwise one per core that this process may use."""
    if (torch := sys.modules.get("torch")) is not None:
        return int(torch.get_num_threads())
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
