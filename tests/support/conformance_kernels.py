"""The conformance suite's runners of what computes in this process: kernels, and the public functions on tensors."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from conformance import Implementation, Result, same_structure
from exact_cases import Case, load

COPIES = (1, 33)  # one row takes other paths through the core than many


def _on_rows(argmax: Callable[..., Any], product: Callable[..., Any], array: Any, back: Any) -> Any:
    """A runner of the kernels' interface, on batches of rows; the product is taken at the exact weights."""

    def key(case: Case) -> Any:
        return case.kernel, case.theta, str(case.x.dtype), len(case.x), bool(case.keep.all()), case.v is None

    def run(cases: list[Case]) -> list[Result]:
        def rows(parts: list[Any]) -> Any:
            return array(np.stack(parts))

        first = cases[0]
        mask = None if first.keep.all() else rows([case.keep for case in cases])
        y = back(argmax(first.kernel, rows([case.x for case in cases]), mask, first.theta))
        if first.v is None:
            return [(row,) for row in y]
        weights = rows([case.weights.astype(case.x.dtype) for case in cases])
        v = rows([case.v for case in cases])
        return list(zip(y, back(product(first.kernel, weights, v, mask, first.theta)), strict=True))

    return in_groups(key, run)


def in_groups(
    key: Callable[[Case], Any], run: Callable[[list[Case]], list[Result]]
) -> Callable[[Case], Result]:
    """A runner of all cases with the same key at once, when the first of them is asked for."""
    groups: dict[Any, list[Case]] = {}
    for case in load():
        groups.setdefault(key(case), []).append(case)

    @cache
    def results(group: Any) -> dict[str, Result]:
        cases = groups[group]
        return dict(zip([case.name for case in cases], run(cases), strict=True))

    return lambda case: results(key(case))[case.name]


def reference() -> Implementation:
    """The specification."""
    from regmax.kernels import reference as kernels

    return Implementation(
        "reference", _on_rows(kernels.argmax, kernels.jacobian_product, np.asarray, np.asarray)
    )


def instruction_sets() -> list[str]:
    """Those of the core that this machine has, the best first."""
    from regmax.kernels import native

    if not native.available():
        return []
    best, found = native.instruction_set(), []
    for name in ("avx512", "avx2", "baseline"):
        try:
            native.use_instruction_set(name)
        except ValueError:
            continue
        found.append(name)
    native.use_instruction_set(best)
    return found


def core(instruction_set: str, tier: str | None = None) -> Implementation:
    """The C++ core with one instruction set, by all tiers or one, on one row and on several copies."""
    from regmax.kernels import native

    best = native.instruction_set()

    def forced(case: Case) -> Result:
        native.use_instruction_set(instruction_set)
        native.force_tier(tier)
        try:
            return _by_core(case)
        finally:
            native.force_tier(None)
            native.use_instruction_set(best)

    name = f"core, {instruction_set}, {f'{tier} tier' if tier else 'all tiers'}"
    return Implementation(name, forced, lambda case: case.kernel in native.CODES)


def _by_core(case: Case) -> Result:
    from regmax.kernels import native

    results = []
    for n in COPIES:
        x, keep, weights, v = (
            None if row is None else np.tile(row, (n, 1))
            for row in (case.x, case.keep, case.weights.astype(case.x.dtype), case.v)
        )
        mask = None if case.keep.all() else keep
        results.append(native.argmax(case.kernel, x, mask, case.theta))
        if v is not None:
            results.append(native.jacobian_product(case.kernel, weights, v, mask, case.theta))
    if any((rows != rows[0]).any() for rows in results):
        raise ArithmeticError("copies of a row differ")
    return tuple(rows[0] for rows in results[len(results) // 2 :])


def tensors() -> Implementation:
    """Torch operations."""
    import torch

    from regmax.kernels import tensors as kernels

    run = _on_rows(kernels.argmax, kernels.jacobian_product, torch.tensor, lambda y: y.numpy())
    return Implementation("torch operations", run)


def triton() -> Implementation:
    """The Triton kernels in Triton's interpreter."""
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is imported
    import torch

    from regmax.kernels import triton as kernels

    run = _on_rows(kernels.argmax, kernels.jacobian_product, torch.tensor, lambda y: y.numpy())
    return Implementation("Triton (interpreter)", run, lambda case: case.kernel in kernels.CHOSEN)


_STRENGTH = {"fusedmax": "lam", "oscarmax": "lam", "sqpnormmax": "p", "entmax": "alpha", "prox_tv1d": "lam"}


def strength(case: Case) -> dict[str, Any]:
    """The strength of a case as an argument of the public function."""
    return {_STRENGTH[case.kernel]: case.theta} if case.kernel in _STRENGTH else {}


def call(case: Case, x: Any, theta: Any, mask: Any) -> Any:
    """The public function of a case's kernel."""
    import regmax

    masks = {} if mask is None else {"mask": mask}
    return getattr(regmax, case.kernel)(x, **dict.fromkeys(strength(case), theta), **masks)


def has_function(case: Case) -> bool:
    """Whether there is a public function for the case."""
    return case.kernel != "prox_oscar" and (not case.kernel.startswith("prox") or bool(case.keep.all()))


def torch_front() -> Implementation:
    """The public functions on tensors with autograd."""
    import torch

    def run(case: Case) -> Result:
        x = torch.tensor(case.x[None], requires_grad=True)
        mask = None if case.keep.all() else torch.tensor(case.keep[None])
        y = call(case, x, case.theta, mask)
        if case.v is None:
            return (y.detach().numpy()[0],)
        v = torch.tensor(case.v[None])
        (by_x,) = torch.autograd.grad(y, x, v)
        found = y.detach().numpy()[0], by_x.numpy()[0]
        if case.theta is None:
            return found
        theta = torch.tensor([[case.theta]], dtype=x.dtype, requires_grad=True)
        again = call(case, x.detach(), theta, mask)
        (by_theta,) = torch.autograd.grad(again, theta, v)
        # A strength that is rounded to float32 may lie beyond a kink.
        return *found, float(by_theta) if same_structure(case, again.detach().numpy()[0]) else None

    return Implementation("torch, core and autograd", run, has_function)


def torch_compiled() -> Implementation:
    """The public functions by `torch.compile`, with autograd: programs for any number and length of rows.

    Cases of equal length are one batch, with a strength per row. One that is rounded to float32 may lie beyond a kink;
    then the weights have another structure.
    """
    import torch

    def key(case: Case) -> Any:
        return case.kernel, str(case.x.dtype), len(case.x), bool(case.keep.all())

    @cache
    def program(kernel: str) -> Any:
        first = next(case for case in load() if case.kernel == kernel)
        function = lambda x, theta, mask: call(first, x, theta, mask)  # noqa: E731
        return torch.compile(function, fullgraph=True, dynamic=True, backend="aot_eager")

    def run(cases: list[Case]) -> list[Result]:
        first, count = cases[0], len(cases)
        cases = [*cases, first]  # at least two rows: a compiler makes another program for one

        def rows(parts: list[Any]) -> torch.Tensor:
            return torch.tensor(np.stack(parts).astype(first.x.dtype))

        x, theta = rows([c.x for c in cases]), rows([[0.1 if c.theta is None else c.theta] for c in cases])
        v = rows([np.zeros_like(c.x) if c.v is None else c.v for c in cases])
        mask = None if first.keep.all() else torch.tensor(np.stack([c.keep for c in cases]))
        leaves = [part.requires_grad_() for part in ((x,) if first.theta is None else (x, theta))]
        # The limit holds for all programs of a function together.
        with torch._dynamo.config.patch(recompile_limit=1000, accumulated_recompile_limit=10000):
            y = program(first.kernel)(x, theta, mask)
            found = [part.numpy() for part in torch.autograd.grad(y, leaves, v)]
        y = y.detach().numpy()
        return [(y[i], found[0][i], *(float(part[i, 0]) for part in found[1:])) for i in range(count)]

    return Implementation("torch.compile", in_groups(key, run), has_function)
