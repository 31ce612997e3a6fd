"""Every implementation against the exact cases: support, equal weights, order, values, Jacobian products."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
from exact_cases import Case, faults, load, product_faults

from regmax.kernels import native, reference, tensors

Judge = Callable[[Case], list[str]]

CASES = load()
PRODUCTS = [case for case in CASES if case.v is not None]

# What rounding still decides wrongly with tensor operations.
TENSORS = {
    "prox_oscar 0.01 ramp 12 float64",
    "prox_tv1d 0.1 tenths 9 float64 3",
    "prox_tv1d 0.1 tenths 9 float64 5",
    "sqpnormmax 1.5 found 4",
}
BATCHES = (1, 33)  # one row takes other paths through the core than many


KERNELS = sorted({(case.kernel, case.theta) for case in CASES}, key=str)
IN_CORE = [pair for pair in KERNELS if pair[0] in native.CODES]
needs_core = pytest.mark.skipif(not native.available(), reason="the core was not built")


def named(names: set[str], *, strict: bool = True) -> pytest.MarkDecorator:
    """The cases with these names as parameters, expected to fail: repair one, and strike it from the list."""
    assert names <= {case.name for case in CASES}
    mark = pytest.mark.xfail(reason=f"one of {len(names)} cases that rounding decides wrongly", strict=strict)
    cases = [case for case in CASES if case.name in names]
    return pytest.mark.parametrize("case", [pytest.param(case, id=case.name, marks=mark) for case in cases])


def wrong(
    cases: list[Case], kernel: str, theta: float | None, known: set[str], judge: Judge
) -> dict[str, list[str]]:
    """What is wrong with a kernel, by case, without the known cases."""
    chosen = [c for c in cases if (c.kernel, c.theta) == (kernel, theta) and c.name not in known]
    return {case.name: found for case in chosen if (found := judge(case))}


def by_reference(case: Case) -> list[str]:
    y = reference.argmax(case.kernel, case.x[None], case.keep[None], case.theta)[0]
    return faults(case, y, ulps=0.501)


def product_by_reference(case: Case) -> list[str]:
    y = case.weights.astype(case.x.dtype)[None]
    product = reference.jacobian_product(case.kernel, y, case.v[None], case.keep[None], case.theta)[0]
    return product_faults(case, product, ulps=0.501)


def by_core(case: Case) -> list[str]:
    """On every tier."""
    found = []
    for tier, n in product((None, "lanes", "whole", "levels", "scalar"), BATCHES):
        x, keep = np.tile(case.x, (n, 1)), np.tile(case.keep, (n, 1))
        native.force_tier(tier)
        try:
            y = native.argmax(case.kernel, x, None if keep.all() else keep, case.theta)
        finally:
            native.force_tier(None)
        found += faults(case, y[0]) + ["rows differ"] * bool((y != y[0]).any())
    return found


def product_by_core(case: Case) -> list[str]:
    found = []
    for n in BATCHES:
        y, v, keep = (np.tile(row, (n, 1)) for row in (case.weights.astype(case.x.dtype), case.v, case.keep))
        product = native.jacobian_product(case.kernel, y, v, None if keep.all() else keep, case.theta)
        found += product_faults(case, product[0]) + ["rows differ"] * bool((product != product[0]).any())
    return found


def by_tensors(case: Case) -> list[str]:
    x, keep = torch.tensor(case.x[None]), torch.tensor(case.keep[None])
    return faults(case, tensors.argmax(case.kernel, x, keep, case.theta)[0].numpy())


def product_by_tensors(case: Case) -> list[str]:
    y, v, keep = (torch.tensor(row[None]) for row in (case.weights.astype(case.x.dtype), case.v, case.keep))
    return product_faults(case, tensors.jacobian_product(case.kernel, y, v, keep, case.theta)[0].numpy())


@pytest.mark.parametrize(("kernel", "theta"), KERNELS)
def test_the_specification_is_exact(kernel: str, theta: float | None) -> None:
    assert wrong(CASES, kernel, theta, set(), by_reference) == {}
    assert wrong(PRODUCTS, kernel, theta, set(), product_by_reference) == {}


@needs_core
@pytest.mark.parametrize(("kernel", "theta"), IN_CORE)
def test_the_core_agrees(kernel: str, theta: float | None) -> None:
    assert wrong(CASES, kernel, theta, set(), by_core) == {}
    assert wrong(PRODUCTS, kernel, theta, set(), product_by_core) == {}


@pytest.mark.parametrize(("kernel", "theta"), KERNELS)
def test_tensor_operations_agree(kernel: str, theta: float | None) -> None:
    assert wrong(CASES, kernel, theta, TENSORS, by_tensors) == {}
    assert wrong(PRODUCTS, kernel, theta, set(), product_by_tensors) == {}


# Not strict: torch adds in an order that depends on the processor.
@named(TENSORS, strict=False)
def test_tensor_operations_where_rounding_decides(case: Case) -> None:
    assert by_tensors(case) == []
