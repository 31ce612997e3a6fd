"""Rows and attention on an accelerator: times by the device's events, and peak memory.

Nothing is read by the host inside a timed loop. Contestants that a machine lacks are left out; a call that fails, for
want of memory for example, is recorded with its error.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import regmax
from regmax.versions import versions

Call = Callable[[], object]
ROWS = ((65536, 64), (16384, 512), (4096, 4096), (512, 32768))  # rows and scores
LENGTHS = (4096, 16384, 65536, 131072)
HEADS, HEAD_DIMENSION = 8, 64
_WARM_UP, _ROUNDS = 5, 20


@dataclass(frozen=True)
class Timing:
    """One contestant on one input; times in milliseconds, memory in bytes above the inputs."""

    part: str
    contestant: str
    run: str
    n: int
    d: int
    milliseconds: float | None = None
    spread: float | None = None
    memory: int | None = None
    error: str | None = None


def describe(device: str) -> dict[str, str]:
    """The device and the versions that a report needs."""
    found = {**versions(), "device": device}
    if torch.device(device).type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found["device"] = f"{properties.name}, {properties.total_memory >> 30} GiB"
        found["runtime"] = f"CUDA {torch.version.cuda}, HIP {torch.version.hip}"
    return found


def measure(
    device: str,
    mappings: Sequence[str],
    *,
    rows: Sequence[tuple[int, int]] = ROWS,
    lengths: Sequence[int] = LENGTHS,
) -> Iterator[Timing]:
    """Time the mappings of rows against softmax, and attention against torch's; forward, and with backward."""
    for n, d in rows:
        x = torch.randn(n, d, device=device)
        for name, call in _row_calls(x, mappings):
            yield from _both(call, (x,), Timing("rows", name, "", n, d))
    for n in lengths:
        shape = 1, HEADS, n, HEAD_DIMENSION
        dtype = torch.float32 if torch.device(device).type == "cpu" else torch.bfloat16
        q, k, v = (torch.randn(shape, device=device, dtype=dtype) for _ in range(3))
        for name, call in _attention_calls(mappings):
            yield from _both(call, (q, k, v), Timing("attention", name, "", n, HEAD_DIMENSION))


def _row_calls(x: Tensor, mappings: Sequence[str]) -> Iterator[tuple[str, Callable[..., Tensor]]]:
    yield "torch.softmax", lambda x: torch.softmax(x, -1)
    for name in mappings:
        yield name, getattr(regmax, name)
    if (entmax := _optional("entmax")) is not None:
        yield "entmax.sparsemax", lambda x: entmax.sparsemax(x, -1)
        yield "entmax.entmax15", lambda x: entmax.entmax15(x, -1)


def _attention_calls(mappings: Sequence[str]) -> Iterator[tuple[str, Callable[..., Tensor]]]:
    yield "scaled_dot_product_attention", _flash
    for name in mappings:
        yield name, lambda q, k, v, name=name: regmax.attention(q, k, v, mapping=name, is_causal=True)
    if (adasplash := _optional("adasplash")) is not None:
        yield "adasplash, alpha=1.5", lambda q, k, v: adasplash.adasplash(q, k, v, alpha=1.5, is_causal=True)


def _flash(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """torch's attention by its flash back end if the device has it, else by any."""
    if not q.is_cuda:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION], set_priority=True):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def _both(call: Callable[..., Tensor], inputs: Sequence[Tensor], timing: Timing) -> Iterator[Timing]:
    leaves = [x.detach().requires_grad_() for x in inputs]

    def train() -> object:
        y = call(*leaves)
        return torch.autograd.grad(y, leaves, y.detach())

    def infer() -> object:
        with torch.no_grad():
            return call(*inputs)

    for run, timed in (("forward", infer), ("forward and backward", train)):
        try:
            yield replace(timing, run=run, **_time(timed, inputs[0].device))
        except (RuntimeError, ValueError, TypeError, AssertionError) as error:
            yield replace(timing, run=run, error=str(error).partition("\n")[0][:200])


def _time(call: Call, device: torch.device) -> dict[str, Any]:
    """The median of single calls, half their interquartile range, and the peak memory."""
    warm_up, rounds = (_WARM_UP, _ROUNDS) if device.type == "cuda" else (1, 3)
    for _ in range(warm_up):
        call()
    if device.type != "cuda":
        times = [_seconds(call) * 1e3 for _ in range(rounds)]
        return {"milliseconds": median(times), "spread": _spread(times)}
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    pairs = [[_event() for _ in range(2)] for _ in range(rounds)]
    for start, end in pairs:
        start.record()
        call()
        end.record()
    torch.cuda.synchronize(device)
    times = [start.elapsed_time(end) for start, end in pairs]
    memory = torch.cuda.max_memory_allocated(device) - before
    return {"milliseconds": median(times), "spread": _spread(times), "memory": memory}


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _seconds(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _spread(times: Sequence[float]) -> float:
    ordered = sorted(times)
    return (ordered[3 * (len(ordered) - 1) // 4] - ordered[(len(ordered) - 1) // 4]) / 2


def _optional(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        return None
