"""Loading the extension module, and its settings."""

import os
from importlib import import_module
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

_NAME = "regmax._core"
_ABI_VERSION = 7


def load(path: str) -> ModuleType:
    """Load the core from the file `path`, in addition to any other core; sanitizers and benchmarks need this."""
    spec = spec_from_file_location(_NAME, path, loader=ExtensionFileLoader(_NAME, path))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return _checked(module)


def _checked(module: ModuleType) -> ModuleType:
    # A core older than version 3 has no `abi_version`.
    version = module.abi_version() if hasattr(module, "abi_version") else "an older one"
    if version != _ABI_VERSION:
        raise ImportError(
            f"regmax needs version {_ABI_VERSION} of its core's interface. Got {version} in {module.__file__}: "
            "reinstall regmax."
        )
    return module


def _find() -> ModuleType | None:
    """The core that REGMAX_LIBRARY names, or the installed one; None in an installation without a core."""
    if named := os.environ.get("REGMAX_LIBRARY"):
        return load(named)
    try:
        return _checked(import_module(_NAME))
    except ModuleNotFoundError as error:
        if error.name != _NAME:
            raise
        return None


if TYPE_CHECKING:
    from regmax import _core

    core = _core
else:
    core = _find()


def available() -> bool:
    """Whether the C++ core was built and loaded."""
    return core is not None


def instruction_set() -> str:
    """The instruction set that the core uses on this machine."""
    if core is None:
        raise RuntimeError("`instruction_set()` needs the native core. Got an installation without it.")
    return core.instruction_set()


def use_instruction_set(name: str) -> None:
    """Choose an instruction set by name, for tests and benchmarks."""
    if core is None or not core.use_instruction_set(name):
        raise ValueError(f"`use_instruction_set(name)` must name one that this machine has. Got {name!r}.")


def force_tier(name: str | None) -> None:
    """Restrict the core to one tier, "lanes", "whole", "levels" or "scalar", for tests; None: its normal choice."""
    if core is None or not core.force_tier(name):
        raise ValueError(
            f"`force_tier(name)` must be lanes, whole, levels, scalar or None, with a core. Got {name!r}."
        )


def int8_screen() -> bool:
    """Whether attention in float32 screens keys in 8 bits; results have the same bits either way."""
    return core is not None and core.int8()


def use_int8_screen(on: bool) -> None:
    """Switch the 8-bit screen on or off, for tests and benchmarks; without AVX-512 VNNI it stays off."""
    if core is not None:
        core.use_int8(bool(on))


class ScreenCounts(NamedTuple):
    """What the 8-bit screen did."""

    rows: int  # query rows that were screened
    fallbacks: int  # of these, rows that took the float path after all
    rescored: int  # keys that were scored again in float32
    candidates: int  # keys that the bounds left for the weights, in the rows that did not fall back


def screen_counts(*, reset: bool = False) -> ScreenCounts:
    """What the 8-bit screen did in all calls since the last reset."""
    return ScreenCounts(*((0, 0, 0, 0) if core is None else core.screen_counts(reset)))


def borrow_threads(gomp_parallel: int | None) -> None:
    """Take threads from the OpenMP whose GOMP_parallel is at this address; None: from the core's own pool."""
    if core is not None:
        core.borrow_threads(gomp_parallel)
