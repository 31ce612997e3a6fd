"""The machine of a run: enough to compare two runs, nothing that identifies the machine or its user."""

import os
import platform
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

from regmax.versions import versions

PEERS = ("entmax", "torchsparseattn")


def describe() -> dict[str, str]:
    """The processor, the versions, the load at the start and the date.

    Example:
        >>> sorted(describe())[:4]
        ['CPU', 'NumPy', 'Python', 'core']
    """
    return {
        "CPU": _cpu(),
        "cores": str(_cores()),
        **versions(),
        **{peer: _version(peer) for peer in PEERS},
        "load": _load(),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _load() -> str:
    """The mean number of runnable processes in the last minute: well below 1 on an idle machine."""
    return f"{os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else "unknown"
