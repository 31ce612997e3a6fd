"""The frameworks as the tests use them: NumPy arrays in, NumPy arrays out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from regmax.kernels import native

COMPILES = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 9)  # docs/support.md


@dataclass(frozen=True)
class Front:
    """A framework and a kernel path: `array` converts a NumPy array to the framework, `numpy` converts back."""

    name: str
    array: Callable[[np.ndarray], Any]
    numpy: Callable[[Any], np.ndarray]

    def __call__(
        self, function: Callable[..., Any], x: np.ndarray, *arrays: np.ndarray, **options: Any
    ) -> np.ndarray:
        """Call a public function of regmax on NumPy arrays through this front end."""
        options = {key: self.array(o) if isinstance(o, np.ndarray) else o for key, o in options.items()}
        return self.numpy(function(self.array(x), *map(self.array, arrays), **options))


FRONTS = {
    "numpy": Front("numpy", np.asarray, np.asarray),
    "torch": Front("torch", torch.tensor, lambda y: y.detach().numpy()),
}


def choose_core(wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The core, or the fallback of an installation without a compiler."""
    assert native.available(), "these tests need the native core: build it first"
    monkeypatch.setattr(native, "available", lambda: wanted)


# The core's tiers (csrc/README.md).
TIERS = ("lanes", "whole", "levels", "scalar")


@contextmanager
def forced_tier(name: str | None) -> Iterator[None]:
    """The core restricted to one tier; the scalar one serves the rows that it leaves."""
    native.force_tier(name)
    try:
        yield
    finally:
        native.force_tier(None)
