"""The public functions reach the Triton kernels, with gradients; the switch turns them off."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("triton")

import torch
from interpreted import triton_kernels

import regmax
from regmax.kernels import triton
from regmax.kernels.triton import launch
from regmax.versions import versions

CALLS = {
    "sparsemax": {},
    "fusedmax": {"lam": 0.1},
    "oscarmax": {"lam": 0.02},
    "sqpnormmax": {"p": 1.5},
    "entmax": {"alpha": 1.3},
}


@pytest.fixture
def interpreted() -> Iterator[None]:
    with triton_kernels():
        yield


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that are launched, by name."""
    names: list[str] = []
    run = launch.run

    def recorded(kernel: Any, x: torch.Tensor) -> Any:
        names.append(kernel.__name__)
        return run(kernel, x)

    monkeypatch.setattr(launch, "run", recorded)
    return names


def gradients(name: str, x: torch.Tensor, strengths: dict[str, Any], **options: Any) -> list[torch.Tensor]:
    leaf = x.clone().requires_grad_()
    learned = {
        key: torch.tensor(value, dtype=x.dtype, requires_grad=True) for key, value in strengths.items()
    }
    gamma = torch.tensor(0.7, dtype=x.dtype, requires_grad=True)
    y = getattr(regmax, name)(leaf, gamma=gamma, **learned, **options)
    direction = torch.cos(torch.arange(y.numel(), dtype=x.dtype)).reshape(y.shape)
    return [y.detach(), *torch.autograd.grad(y, [leaf, gamma, *learned.values()], direction)]


@pytest.mark.parametrize("name", CALLS)
def test_public_functions_and_all_gradients_agree_with_the_core(name: str, launches: list[str]) -> None:
    x = torch.randn(3, 4, 11, generator=torch.Generator().manual_seed(0))
    mask = torch.rand(4, 1, generator=torch.Generator().manual_seed(1)) < 0.9
    exact = gradients(name, x.double(), CALLS[name], mask=mask)
    assert not launches
    with triton_kernels():
        found = gradients(name, x, CALLS[name], mask=mask)
    assert {"row_candidates", "row_weights", "row_products"} <= set(launches)
    for part, wanted in zip(found, exact, strict=True):
        torch.testing.assert_close(part.double(), wanted, rtol=0, atol=2e-5)


def test_halves_and_vmap(interpreted: None) -> None:
    x = torch.randn(2, 9, generator=torch.Generator().manual_seed(0))
    assert regmax.fusedmax(x.half(), lam=0.1).dtype == torch.float16
    mapped = torch.vmap(lambda row: regmax.fusedmax(row, lam=0.1))(x)
    torch.testing.assert_close(mapped, regmax.fusedmax(x, lam=0.1))


@pytest.mark.parametrize("name", ["fusedmax", "entmax"])
def test_second_derivatives_agree_with_the_core(name: str) -> None:
    x = torch.randn(2, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def second() -> torch.Tensor:
        leaf = x.clone().requires_grad_()
        y = getattr(regmax, name)(leaf, **CALLS[name])
        (first,) = torch.autograd.grad(y.square().sum(), leaf, create_graph=True)
        return torch.autograd.grad(first.square().sum(), leaf)[0]

    exact = second()
    with triton_kernels():
        torch.testing.assert_close(second(), exact, rtol=0, atol=1e-10)


def test_the_switch_turns_the_kernels_off(
    interpreted: None, launches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(2, 9, generator=torch.Generator().manual_seed(0))
    assert "kernels for GPUs, experimental" in versions()["triton"]
    expected = regmax.fusedmax(x)
    assert launches
    launches.clear()
    monkeypatch.setenv("REGMAX_TRITON", "0")
    assert not triton.available()
    assert "switched off by REGMAX_TRITON" in versions()["triton"]
    torch.testing.assert_close(regmax.fusedmax(x), expected)
    assert not launches


def test_cpu_tensors_keep_the_core(launches: list[str]) -> None:
    regmax.fusedmax(torch.randn(2, 9))
    assert not launches


def test_a_compiler_sees_the_kernels_and_only_options_that_it_knows() -> None:
    """Traced with fake tensors of a GPU, in a process without the interpreter, whose kernels cannot be traced."""
    code = (
        "import torch\n"
        "from torch._subclasses.fake_tensor import FakeTensorMode\n"
        "from torch.fx.experimental.proxy_tensor import make_fx\n"
        "import regmax\n"
        "from regmax.kernels import triton\n"
        "with FakeTensorMode():\n"
        "    x = torch.empty(8, 20, device='cuda')\n"
        "    graph = make_fx(lambda x: triton.argmax('fusedmax', x, None, 0.1), tracing_mode='fake')(x)\n"
        "    calls = [node for node in graph.graph.nodes if 'triton_kernel_wrapper' in str(node.target)]\n"
        "    assert len(calls) == 2, graph.code\n"
        "    assert not any('enable_fp_fusion' in node.kwargs['kwargs'] for node in calls)\n"
        "    graph = make_fx(lambda x: regmax.fusedmax(x, lam=0.1), tracing_mode='fake')(x)\n"
        "    assert 'regmax.triton_argmax' in graph.code, graph.code\n"
    )
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=200)
