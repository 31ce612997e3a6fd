"""Fixtures that most tests share: the table's rows, and the paths by which an array reaches a kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import long_cases
import pytest
import torch
from fronts import COMPILES, FRONTS, TIERS, Front, choose_core, forced_tier
from hypothesis import HealthCheck, settings
from table import DEFAULTS, TABLE, Entry

# Derandomized: a CI result depends on the commit, not on the draw, so a few examples of each law suffice.
# `--hypothesis-profile=long` looks for new counterexamples; `few` is for a second environment, whose versions matter
# and not the draw.
settings.register_profile(
    "default",
    max_examples=6,
    derandomize=True,
    database=None,
    deadline=None,
    # The fixtures that replace the core apply to all examples of a test.
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
        HealthCheck.function_scoped_fixture,
    ],
)
settings.register_profile("few", settings.get_profile("default"), max_examples=4)
settings.register_profile("long", settings.get_profile("default"), max_examples=1000, derandomize=False)
settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long", action="store_true", help="also the cases that `make test` leaves to `make test-long`"
    )


def pytest_configure(config: pytest.Config) -> None:
    for line in long_cases.MARKERS:
        config.addinivalue_line("markers", line)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--long") and (rest := long_cases.among(items, _on_a_forced_tier)):
        items[:] = [item for item in items if item not in rest]
        config.hook.pytest_deselected(items=list(rest))


@pytest.fixture(autouse=True)
def compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip a test when it calls the compiler of a torch that is supported in eager mode only."""
    if not COMPILES:
        monkeypatch.setattr(torch, "compile", lambda *_, **__: pytest.skip("torch.compile from torch 2.9 on"))
        monkeypatch.setattr(
            torch.export, "export", lambda *_, **__: pytest.skip("torch.export from torch 2.9 on")
        )


@pytest.fixture(params=TABLE, ids=str, scope="session")
def entry(request: pytest.FixtureRequest) -> Entry:
    """Each row of the table in turn."""
    return request.param


FORCED = [f"numpy-{tier}" for tier in TIERS]
PATHS = ["numpy-native", "numpy-fallback", "torch-native", "torch-tensors", *FORCED]


def _on_a_forced_tier(parameters: Mapping[str, Any]) -> bool:
    """Strengths other than the default; the tier that the core chooses and the default strengths stand for them."""
    return parameters.get("front") in FORCED and parameters.get("entry", DEFAULTS[0]) not in DEFAULTS


@pytest.fixture(params=PATHS)
def front(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
    """NumPy and torch, each with the C++ core and without it, and the core restricted to each of its tiers."""
    name, _, path = request.param.partition("-")
    choose_core(path == "native" or path in TIERS, monkeypatch)
    with forced_tier(path if path in TIERS else None):
        yield FRONTS[name]


@pytest.fixture(params=["native", "tensors"])
def torch_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Torch tensors with the C++ core and without it."""
    choose_core(request.param == "native", monkeypatch)
    return request.param
