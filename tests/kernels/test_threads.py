"""Threads, forks and imports."""

from __future__ import annotations

import ctypes
import multiprocessing
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from table import DEFAULTS, Entry

import regmax
from regmax.kernels import native

MAPPINGS = pytest.mark.parametrize("entry", DEFAULTS, ids=str)
SHAPES = [(2048, 128), (8192, 33), (64, 4096)]  # large enough that the work is divided


@pytest.fixture(autouse=True)
def restore_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def forward_and_backward(entry: Entry, x: torch.Tensor, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.clone().requires_grad_()
    y = entry(x, **options)
    (gradient,) = torch.autograd.grad(y, x, torch.cos(torch.arange(x.shape[-1], dtype=x.dtype)).expand_as(x))
    return y.detach(), gradient


@MAPPINGS
@pytest.mark.parametrize("shape", SHAPES)
def test_the_number_of_threads_does_not_change_a_bit(entry: Entry, shape: tuple[int, int]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.8
    results = []
    for threads in (1, 2, 3, 2):
        torch.set_num_threads(threads)
        parts = (*forward_and_backward(entry, x), *forward_and_backward(entry, x, mask=mask))
        # softmax is torch's own; the rounding of its backward depends on the number of threads.
        results.append(parts[::2] if entry.mapping == "softmax" else parts)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert torch.equal(a, b)


@MAPPINGS
@pytest.mark.parametrize("shape", [(8192, 64), (4096, 128), (1024, 512), (256, 2048)])
def test_a_large_batch_is_its_parts(entry: Entry, shape: tuple[int, int]) -> None:
    """Large results use non-temporal stores, those of the parts do not."""
    torch.set_num_threads(1)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    mask = torch.arange(shape[1]) < torch.randint(
        shape[1], (shape[0], 1), generator=torch.Generator().manual_seed(3)
    )
    for given, keep in ((x, None), (x, mask), (x.double(), None)):
        whole = forward_and_backward(entry, given, mask=keep)
        masks = [None] * 4 if keep is None else keep.chunk(4)
        pairs = zip(given.chunk(4), masks, strict=True)
        parts = [forward_and_backward(entry, part, mask=part_keep) for part, part_keep in pairs]
        for together, apart in zip(whole, zip(*parts, strict=True), strict=True):
            assert torch.equal(together, torch.cat(apart))


def _work_in_child(queue: Any, x: np.ndarray) -> None:
    queue.put(regmax.fusedmax(x, lam=0.1).sum())


def test_a_fork_after_threads_does_not_hang() -> None:
    """A child process has none of its parent's worker threads: it would wait for them forever."""
    torch.set_num_threads(2)
    x = np.random.default_rng(0).normal(size=(4096, 128)).astype(np.float32)
    regmax.fusedmax(torch.tensor(x), lam=0.1)
    regmax.fusedmax(x, lam=0.1)
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_work_in_child, args=(queue, x))
    child.start()
    child.join(timeout=60)
    if child.is_alive():
        child.kill()
        pytest.fail("the child hangs")
    assert child.exitcode == 0
    np.testing.assert_allclose(queue.get(), len(x), rtol=1e-4)
    np.testing.assert_allclose(
        regmax.fusedmax(x, lam=0.1).sum(), len(x), rtol=1e-4
    )  # and the parent still works


@MAPPINGS
def test_concurrent_calls_do_not_disturb_each_other(entry: Entry) -> None:
    torch.set_num_threads(2)
    batches = [
        torch.randn(512, d, generator=torch.Generator().manual_seed(d)) for d in (5, 32, 64, 129, 256, 700)
    ]
    expected = [forward_and_backward(entry, x) for x in batches]
    with ThreadPoolExecutor(max_workers=4) as pool:
        for _ in range(5):
            for ours, theirs in zip(
                pool.map(lambda x: forward_and_backward(entry, x), batches), expected, strict=True
            ):
                assert torch.equal(ours[0], theirs[0])
                assert torch.equal(ours[1], theirs[1])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are counted in /proc")
def test_torch_and_the_core_share_their_threads() -> None:
    """Two thread pools would compete for the cores."""
    code = """
import os, torch, regmax
torch.set_num_threads(2)
x = torch.randn(4096, 256)
torch.softmax(x, -1)
threads = len(os.listdir("/proc/self/task"))
regmax.fusedmax(x)
print(len(os.listdir("/proc/self/task")) - threads)
"""
    assert run_python(code).strip() == "0"


def test_a_thread_can_borrow_a_host_s_threads_for_its_own_calls() -> None:
    """As the XLA handlers do: the host divides a call on this thread, and no call on another one."""
    work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    fork_join = ctypes.CFUNCTYPE(None, ctypes.c_void_p, work, ctypes.c_void_p, ctypes.c_int32)
    forks: list[tuple[int, int]] = []

    @fork_join
    def run(host: int, job: Any, context: int, threads: int) -> None:
        forks.append((host, threads))
        with ThreadPoolExecutor(max_workers=threads) as pool:
            for done in [pool.submit(job, context) for _ in range(threads)]:
                done.result()

    borrow = ctypes.CDLL(native.core.__file__).regmax_borrow_threads_here
    borrow.argtypes, borrow.restype = (ctypes.c_void_p, ctypes.c_void_p), None
    torch.set_num_threads(2)
    x = torch.randn(4096, 256, generator=torch.Generator().manual_seed(0))
    expected = regmax.fusedmax(x)
    borrow(ctypes.cast(run, ctypes.c_void_p), 7)
    try:
        here = regmax.fusedmax(x)
        with ThreadPoolExecutor(max_workers=1) as pool:
            elsewhere = pool.submit(regmax.fusedmax, x).result()
    finally:
        borrow(None, None)
    assert forks == [(7, 2)]
    assert torch.equal(here, expected)
    assert torch.equal(elsewhere, expected)
    regmax.fusedmax(x)
    assert len(forks) == 1


def run_python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout


def test_importing_regmax_imports_no_framework() -> None:
    heavy = "{'torch', 'jax', 'matplotlib', 'scipy', 'transformers', 'rich'}"
    assert run_python(f"import sys, regmax; print(sorted({heavy} & set(sys.modules)))").strip() == "[]"


def test_numpy_arrays_need_no_torch() -> None:
    code = (
        "import sys, numpy, regmax; y = regmax.fusedmax(numpy.zeros(4)); print(y[0], 'torch' in sys.modules)"
    )
    assert run_python(code).split() == ["0.25", "False"]


def test_importing_regmax_imports_little() -> None:
    """A few modules of its own and of the standard library: front ends, kernels and models come with use."""
    code = "import sys, numpy; before = set(sys.modules); import regmax; print(*set(sys.modules) - before)"
    names = set(run_python(code).split())
    own = {name for name in names if name.split(".")[0] == "regmax"}
    late = {
        "regmax.nn",
        "regmax.plots",
        "regmax.kernels.native",
        "regmax.frontends.numpy",
        "regmax.frontends.torch",
    }
    assert len(names) < 40
    assert not own & late


def test_the_process_ends_cleanly_after_using_threads() -> None:
    code = "import numpy, regmax; regmax.sparsemax(numpy.zeros((4096, 256), dtype='float32')); print('done')"
    assert run_python(code).strip() == "done"
