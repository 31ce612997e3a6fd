"""Fixtures that most tests share: the table's rows, and the ways in which an array reaches a kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from table import TABLE, Entry

from regmax.kernels import native

# Derandomized: a run on CI says something about the commit, not about the draw. Raise the number by
# `--hypothesis-profile=long` to look for new counterexamples.
settings.register_profile(
    "default",
    max_examples=30,
    derandomize=True,
    database=None,
    deadline=None,
    # The fixtures that replace the core do so for all examples of a test alike.
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
        HealthCheck.function_scoped_fixture,
    ],
)
settings.register_profile("long", settings.get_profile("default"), max_examples=1000, derandomize=False)
settings.load_profile("default")


@pytest.fixture(params=TABLE, ids=str, scope="session")
def entry(request: pytest.FixtureRequest) -> Entry:
    """Each row of the table in turn."""
    return request.param


@dataclass(frozen=True)
class Front:
    """A framework and a kernel path: `array` takes a NumPy array to the framework, `numpy` brings a result back."""

    name: str
    array: Callable[[np.ndarray], Any]
    numpy: Callable[[Any], np.ndarray]

    def __call__(
        self, function: Callable[..., Any], x: np.ndarray, *arrays: np.ndarray, **options: Any
    ) -> np.ndarray:
        """Call a public function of regmax on NumPy arrays, by way of this front."""
        options = {key: self.array(o) if isinstance(o, np.ndarray) else o for key, o in options.items()}
        return self.numpy(function(self.array(x), *map(self.array, arrays), **options))


FRONTS = {
    "numpy": Front("numpy", np.asarray, np.asarray),
    "torch": Front("torch", torch.tensor, lambda y: y.detach().numpy()),
}


@pytest.fixture(params=["numpy-native", "numpy-fallback", "torch-native", "torch-tensors"])
def front(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Front:
    """NumPy and torch, each with the C++ core and without it."""
    name, _, path = request.param.partition("-")
    choose_core(path == "native", monkeypatch)
    return FRONTS[name]


@pytest.fixture(params=["native", "tensors"])
def torch_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Torch tensors with the C++ core and without it."""
    choose_core(request.param == "native", monkeypatch)
    return request.param


def choose_core(wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The core, or what an installation without a compiler sees."""
    assert native.available(), "the tests judge the native core: build it first"
    monkeypatch.setattr(native, "available", lambda: wanted)
