"""What a GPU's owner runs, by `make test-gpu`: the Triton kernels on the device against the CPU in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import regmax
from regmax.kernels import triton

if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)
if not triton.available():
    pytest.skip("needs triton, and REGMAX_TRITON not 0", allow_module_level=True)

CALLS: dict[str, dict[str, Any]] = {
    "sparsemax": {},
    "fusedmax": {"lam": 0.1},
    "oscarmax": {"lam": 0.01},
    "sqpnormmax": {"p": 1.5},
    "entmax": {"alpha": 1.5},
}
MAPPINGS = pytest.mark.parametrize("name", CALLS)


def with_gradient(name: str, x: torch.Tensor, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    leaf = x.clone().requires_grad_()
    y = getattr(regmax, name)(leaf, **CALLS[name], **options)
    direction = torch.cos(torch.arange(y.numel(), dtype=torch.float64)).reshape(y.shape).to(y)
    return y.detach().double().cpu(), torch.autograd.grad(y, leaf, direction)[0].double().cpu()


@MAPPINGS
@pytest.mark.parametrize("d", [1, 7, 32, 33, 128, 1000, 5000])
@pytest.mark.parametrize("scale", [0.01, 1.0, 4.0])
def test_rows(name: str, d: int, scale: float) -> None:
    x = scale * torch.randn(257, d, generator=torch.Generator().manual_seed(d))
    for found, wanted in zip(with_gradient(name, x.cuda()), with_gradient(name, x.double()), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=2e-5)


@MAPPINGS
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_types(name: str, dtype: torch.dtype) -> None:
    x = torch.randn(65, 50, generator=torch.Generator().manual_seed(0)).to(dtype)
    y, _ = with_gradient(name, x.cuda())
    expected, _ = with_gradient(name, x.double())
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-11 if dtype == torch.float64 else 4e-3)


@MAPPINGS
def test_masks(name: str) -> None:
    x = torch.randn(64, 40, generator=torch.Generator().manual_seed(0))
    mask = torch.rand(64, 40, generator=torch.Generator().manual_seed(1)) < 0.6
    found = with_gradient(name, x.cuda(), mask=mask.cuda())
    for part, wanted in zip(found, with_gradient(name, x.double(), mask=mask), strict=True):
        torch.testing.assert_close(part, wanted, rtol=0, atol=2e-5)


@MAPPINGS
def test_rows_are_mapped_without_a_read_by_the_host(name: str) -> None:
    x = torch.randn(64, 5000, device="cuda", requires_grad=True)
    getattr(regmax, name)(x, **CALLS[name]).square().sum().backward()  # compiles
    torch.cuda.set_sync_debug_mode("error")
    try:
        getattr(regmax, name)(x, **CALLS[name]).square().sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def mapping_of(name: str) -> str:
    return ",".join([name, *(f"{key}={value}" for key, value in CALLS[name].items())])


@MAPPINGS
@pytest.mark.parametrize("scale", [0.01, 1.0])
def test_attention_is_computed_without_a_read_by_the_host(name: str, scale: float) -> None:
    """Flat scores overflow the slots, and are computed on the device too."""
    q, k, v = (torch.randn(1, 2, 300, 64, device="cuda", requires_grad=True) for _ in range(3))

    def train() -> None:
        regmax.attention(scale * q, k, v, mapping=mapping_of(name), dropout_p=0.1).square().sum().backward()

    train()  # compiles
    torch.cuda.set_sync_debug_mode("error")
    try:
        train()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@MAPPINGS
@pytest.mark.parametrize("scale", [0.01, 1.0])
def test_compiled_attention(name: str, scale: float) -> None:
    parts = [torch.randn(1, 2, 200, 64, device="cuda") for _ in range(3)]
    results = []
    for dynamo in (False, True):
        leaves = [part.clone().requires_grad_() for part in parts]

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return regmax.attention(scale * q, k, v, mapping=mapping_of(name), is_causal=True)

        out = (torch.compile(attend, fullgraph=True) if dynamo else attend)(*leaves)
        results.append([out.detach(), *torch.autograd.grad(out, leaves, torch.ones_like(out))])
    for found, wanted in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@MAPPINGS
@pytest.mark.parametrize(
    ("n", "e", "dtype"), [(77, 16, "float32"), (300, 64, "float32"), (512, 128, "bfloat16")]
)
@pytest.mark.parametrize("deterministic", [False, True])
def test_attention(name: str, n: int, e: int, dtype: str, deterministic: bool) -> None:
    generator = torch.Generator().manual_seed(n)
    parts = [torch.randn(2, 3, n, e, generator=generator).to(getattr(torch, dtype)) for _ in range(3)]
    mapping = mapping_of(name)
    results = []
    torch.use_deterministic_algorithms(deterministic)
    try:
        for leaves in ([part.cuda() for part in parts], [part.double() for part in parts]):
            leaves = [leaf.requires_grad_() for leaf in leaves]
            out = regmax.attention(*leaves, mapping=mapping, is_causal=True)
            grads = torch.autograd.grad(out, leaves, torch.ones_like(out))
            results.append([part.detach().double().cpu() for part in (out, *grads)])
    finally:
        torch.use_deterministic_algorithms(False)
    for found, wanted in zip(*results, strict=True):
        scale = max(1.0, float(wanted.abs().max()))
        tolerance = 3e-5 if dtype == "float32" else 3e-2
        torch.testing.assert_close(found, wanted, rtol=0, atol=tolerance * scale)


@MAPPINGS
def test_compiled(name: str) -> None:
    x = torch.randn(64, 100, device="cuda")
    function = torch.compile(lambda x: getattr(regmax, name)(2 * x, **CALLS[name]).square(), fullgraph=True)
    expected = getattr(regmax, name)(2 * x, **CALLS[name]).square()
    torch.testing.assert_close(function(x), expected)
