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


def test_a_compiler_sees_the_kernels_of_attention_in_both_passes() -> None:
    """Traced on CPU tensors that count as an accelerator's; the graphs cannot run, and return zeros."""
    code = (
        "import torch\n"
        "from functorch.compile import make_boxed_func\n"
        "from torch._dynamo.backends.common import aot_autograd\n"
        "from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table\n"
        "import regmax\n"
        "from regmax.frontends.torch import accelerators\n"
        "from regmax.kernels import native\n"
        "native.available, accelerators.interpreting = lambda: False, True\n"
        "graphs = []\n"
        "def traced(graph, inputs):\n"
        "    calls = [node for node in graph.graph.nodes if 'triton_kernel_wrapper' in str(node.target)]\n"
        "    table = kernel_side_table.get_kernel\n"
        "    graphs.append([table(node.kwargs['kernel_idx']).fn.__name__ for node in calls])\n"
        "    results = next(node for node in graph.graph.nodes if node.op == 'output').args[0]\n"
        "    values = [node.meta['val'] if isinstance(node, torch.fx.Node) else node for node in results]\n"
        "    def zeros(*_):\n"
        "        return [None if x is None else torch.zeros(tuple(x.shape), dtype=x.dtype) for x in values]\n"
        "    return make_boxed_func(zeros)\n"
        "backend = aot_autograd(fw_compiler=traced, bw_compiler=traced)\n"
        "@torch.compile(backend=backend, fullgraph=True)\n"
        "def attend(q, k, v, bias, lam):\n"
        "    mapping = regmax.FusedLasso(lam)\n"
        "    return regmax.attention(q, k, v, mapping=mapping, bias=bias, is_causal=True, dropout_p=0.1)\n"
        "shapes = [(1, 2, 150, 20)] * 3 + [(2, 150, 150), (1, 2, 1, 1)]\n"
        "leaves = [torch.rand(shape, requires_grad=True) for shape in shapes]\n"
        "attend(*leaves).sum().backward()\n"
        "assert [leaf.grad.shape for leaf in leaves] == [leaf.shape for leaf in leaves]\n"
        "first = ['attention_candidates', 'row_weights', 'dropout_of_slots', 'attention_gather', 'long_attention']\n"
        "second = ['dropout_of_slots', 'attention_products', 'long_attention_grads']\n"
        "assert graphs == [first, second], graphs\n"
        "graphs.clear()\n"
        "torch.use_deterministic_algorithms(True)\n"
        "q, k, v, _, lam = leaves\n"
        "q, k, v = (x.bfloat16() for x in (q, k, v))  # float32 takes two passes\n"
        "attend(q, k, v, None, lam).sum().backward()\n"
        "first = ['candidates_in_one_pass', 'list_queries', 'order_candidates', *first]\n"
        "second.insert(2, 'attention_key_grads')\n"
        "assert graphs == [first, second], graphs\n"
    )
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr[-2000:]
