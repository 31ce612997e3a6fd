"""`regmax.attention` in the ways that people use it, relative to torch's `scaled_dot_product_attention` (softmax)."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import regmax
from regmax.bench.attention_cases import HEADS, inputs
from regmax.bench.uses import Use, has_compiler

SOFTMAX, CAUSAL = "softmax attention", "causal softmax attention"
_QUICK = ("attention: a name", "attention: lam learned")
_fusedmax = partial(regmax.attention, mapping="fusedmax")

Attend = Callable[..., Any]


def attention_uses(n: int = 1024) -> list[Use]:
    """Training with n queries, decoding, and inference on short sequences."""
    return [*_training(n), *_decoding(), *_inference()]


def _training(n: int) -> Iterator[Use]:
    """8 heads of 64, attention-like scores, forward + backward."""
    lam, gamma = _learned(0.1), _learned(1.0, HEADS, 1, 1)
    per_head, small = _learned(0.1, HEADS, 1, 1), _learned(1 / n)
    fixed = torch.linspace(0.05, 0.2, HEADS).reshape(HEADS, 1, 1)
    yield _train("a name", n)
    yield _train("a module", n, mapping=regmax.nn.Fusedmax())
    yield _train("an annealed module", n, mapping=_annealed())
    yield _train("lam learned", n, lam, mapping=regmax.FusedLasso(lam=lam))
    yield _train("lam learned, per head", n, per_head, mapping=regmax.FusedLasso(lam=per_head))
    yield _train("gamma learned, per head", n, gamma, mapping=partial(regmax.fusedmax, gamma=gamma))
    yield _train("lam per head", n, mapping=regmax.FusedLasso(lam=fixed))
    yield _train("oscarmax, lam learned", n, small, mapping=regmax.Oscar(lam=small))
    if has_compiler():
        yield _train("compiled", n, attend=lambda *qkv: _compiled()(*qkv))
    yield _train("autocast to bfloat16", n, attend=_autocast)
    yield _train("dense weights", n, return_weights=True)
    yield _train("sparse weights", n, return_weights="sparse")
    bias = _learned(0.0, HEADS, n, n)
    yield _train("gradient of the bias", n, bias, bias=bias)
    yield _train("is_causal", n, is_causal=True, causal=True)
    mask = torch.ones(n, n, dtype=torch.bool).tril()
    yield _train("a dense causal mask", n, mask=mask, causal=True)


def _decoding() -> Iterator[Use]:
    """One or four queries against a long cache, forward."""
    for heads, kv_heads, queries, keys, e in (
        (32, 32, 1, 4096, 128),
        (8, 8, 1, 32768, 64),
        (32, 8, 1, 4096, 128),
        (32, 8, 4, 4096, 128),
    ):
        shapes = ((heads, queries, e), (kv_heads, keys, e), (kv_heads, keys, e))
        name = f"decode: {queries} of {heads} heads, {kv_heads} x {keys} keys of {e}"
        ours = partial(_fusedmax, enable_gqa=kv_heads != heads)
        torchs = partial(scaled_dot_product_attention, enable_gqa=kv_heads != heads)
        yield _infer(name, shapes, ours, torchs)


def _inference() -> Iterator[Use]:
    """12 heads of 32 with padding, forward, as in a small BERT."""
    for n in (32, 128):
        mask = (torch.arange(n) < n - 3).reshape(1, 1, 1, n)
        ours = partial(regmax.attention, mapping="sparsemax", mask=mask)
        torchs = partial(scaled_dot_product_attention, attn_mask=mask)
        yield _infer(f"inference: n = {n}, padding", ((12, n, 32),) * 3, ours, torchs)


def _train(
    name: str, n: int, *learned: Tensor, attend: Attend = _fusedmax, causal: bool = False, **options: Any
) -> Use:
    name = f"attention: {name}"

    def calls() -> tuple[Callable[[], object], Callable[[], object]]:
        tensors = inputs(n, "attention")
        torchs = partial(scaled_dot_product_attention, is_causal=causal)
        ours = partial(attend, **options)
        return partial(gradients, torchs, tensors), partial(gradients, ours, tensors, learned)

    return Use(name, CAUSAL if causal else SOFTMAX, calls, name in _QUICK)


def gradients(
    attend: Attend, tensors: tuple[Tensor, ...], learned: tuple[Tensor, ...] = ()
) -> tuple[Tensor, ...]:
    """Forward + backward: the gradients of the tensors and of what is learned; values are the direction."""
    out = attend(*tensors)
    out = out[0] if isinstance(out, tuple) else out
    return torch.autograd.grad(out, (*tensors, *learned), tensors[2].detach().to(out.dtype))


def _infer(name: str, shapes: tuple[tuple[int, ...], ...], ours: Attend, torchs: Attend) -> Use:
    def calls() -> tuple[Callable[[], object], Callable[[], object]]:
        generator = torch.Generator().manual_seed(shapes[1][1])
        tensors = [torch.randn(1, *shape, generator=generator) for shape in shapes]
        return partial(_without_gradients, torchs, tensors), partial(_without_gradients, ours, tensors)

    return Use(name, SOFTMAX, calls)


@torch.no_grad()
def _without_gradients(attend: Attend, tensors: list[Tensor]) -> object:
    return attend(*tensors)


def _learned(value: float, *shape: int) -> Tensor:
    return torch.full(shape, value, requires_grad=True)


def _annealed() -> regmax.nn.Fusedmax:
    module = regmax.nn.Fusedmax()
    regmax.nn.AnnealGamma(module, start=1.5, end=1.0, steps=10)
    return module


def _autocast(*qkv: Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return _fusedmax(*qkv)


@cache
def _compiled() -> Any:
    return torch.compile(_fusedmax, fullgraph=True)
