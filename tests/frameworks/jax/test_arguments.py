"""The same arguments mean the same to NumPy, torch and JAX: strengths, dimensions, masks, odd scores and sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from table import DEFAULTS, Entry

jax = pytest.importorskip("jax")
jnp = jax.numpy

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4, 6)).astype(np.float32)
ODD = X.copy()
ODD[0, 0], ODD[0, 1, 2], ODD[1, 0, 0], ODD[1, 1, 1] = -np.inf, -np.inf, np.inf, np.nan
MASK = RNG.random((3, 4, 6)) > 0.4
HUGE = np.array([[3e38, -3e38, 0.0, 1.0]], np.float32)
# The ends of the bounds, and a strength per row that mixes them.
BOUNDS: dict[str, list[Any]] = {
    "lam": [0, 0.0, 1e30, np.array(0.0, np.float32), np.array([[0.0], [0.1], [3.0], [1e9]], np.float32)],
    "p": [2, 2.0, 1.0001, np.array(2.0, np.float32), np.array([[2.0], [1.5], [1.01], [1.9]], np.float32)],
    "alpha": [1, 2, 1.0001, np.array(1.0, np.float32), np.array([[1.0], [1.5], [2.0], [1.9]], np.float32)],
}


def calls(entry: Entry) -> Iterator[tuple[np.ndarray, dict[str, Any]]]:
    """Scores and options."""
    for gamma in (0.3, 2, 1e-30, 1e30, np.float64(0.5), RNG.uniform(0.3, 2, (4, 1)).astype(np.float32)):
        yield X, {"gamma": gamma}
    yield X, {"dim": 1, "gamma": RNG.uniform(0.3, 2, (3, 1, 6)).astype(np.float32)}
    yield X, {"dim": -3, "mask": MASK[0]}
    for mask in (MASK[0, 0], MASK[0], MASK[:, :1], MASK[0, :, :1], np.array(True)):
        yield X, {"mask": mask}
    for options in ({}, {"gamma": 0.5}, {"mask": MASK, "gamma": np.float32(2.0)}, {"mask": np.isfinite(ODD)}):
        yield ODD, options
    for shape in ((0, 4), (3, 0), (0,), (2, 0, 3), (1,), (5, 1)):
        x = np.zeros(shape, np.float32)
        yield x, {"gamma": np.array(2.0, np.float32), "mask": np.ones(shape, bool)}
        yield x, {"dim": 0}
    yield HUGE, {"gamma": 0.5}
    yield X.astype(np.float16), {"gamma": np.array(0.5, np.float16)}
    for name in entry.parameters:
        for value in BOUNDS[name]:
            yield X, {name: value}
            yield X, {name: value, "mask": MASK}


def converted(value: Any, convert: Callable[[np.ndarray], Any]) -> Any:
    return convert(value) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("entry", DEFAULTS, ids=str)
def test_frameworks_agree(entry: Entry) -> None:
    for x, options in calls(entry):
        expected = entry(x, **options)
        for convert in (torch.tensor, jnp.asarray):
            y = entry(convert(x), **{name: converted(value, convert) for name, value in options.items()})
            found = np.asarray(y)
            assert found.dtype == expected.dtype
            atol = 1e-3 if x.dtype == np.float16 else 2e-6
            np.testing.assert_allclose(found, expected, rtol=0, atol=atol, err_msg=str(options))
            # XLA flushes subnormal numbers to zero.
            flushed = (found == 0) & (expected < np.finfo(np.float32).tiny)
            assert np.array_equal((found == 0) & ~flushed, (expected == 0) & ~flushed), options


@pytest.mark.parametrize("entry", DEFAULTS, ids=str)
def test_frameworks_refuse_the_same(entry: Entry) -> None:
    wrong: list[tuple[np.ndarray, dict[str, Any]]] = [
        *((X, {"gamma": gamma}) for gamma in (0.0, -1.0, float("nan"), float("inf"))),
        (X, {"gamma": np.array(-1.0, np.float32)}),
        (X, {"gamma": np.ones((3, 4, 6), np.float32)}),
        (X, {"gamma": np.ones(2, np.float32)}),
        (X, {"mask": np.ones(6, np.float32)}),
        (X, {"mask": np.ones((2, 3, 4, 6), bool)}),
        (X, {"dim": 3}),
        (np.zeros((), np.float32), {}),
        (np.zeros(3, np.int32), {}),
    ]
    out_of_bounds = {"lam": (-1e-9, float("inf")), "p": (1.0, 2.01), "alpha": (0.99, 2.01)}
    wrong += [(X, {name: value}) for name in entry.parameters for value in out_of_bounds[name]]
    for x, options in wrong:
        with pytest.raises((ValueError, TypeError, IndexError)) as expected:
            entry(x, **options)
        for convert in (torch.tensor, jnp.asarray):
            arguments = {name: converted(value, convert) for name, value in options.items()}
            with pytest.raises(expected.type):
                entry(convert(x), **arguments)


@pytest.mark.parametrize("entry", DEFAULTS, ids=str)
def test_jacobians_by_columns_are_torch_s(entry: Entry) -> None:
    """`jacfwd` in scores, gamma and the strength, with a mask, a score of -inf and another dimension."""
    x = X[0].astype(np.float32)
    x[1, 2] = -np.inf
    strengths = {"gamma": np.full((1, 6), 0.7, np.float32)}
    strengths |= {name: np.full((1, 6), value, np.float32) for name, value in entry.parameters.items()}

    def function(convert: Callable[[np.ndarray], Any]) -> Callable[..., Any]:
        mask = convert(MASK[0])
        return lambda x, *values: entry(x, 0, mask=mask, **dict(zip(strengths, values, strict=True)))

    arrays = (x, *strengths.values())
    dims = tuple(range(len(arrays)))
    found = jax.jacfwd(function(jnp.asarray), dims)(*map(jnp.asarray, arrays))
    expected = torch.func.jacrev(function(torch.tensor), dims)(*map(torch.tensor, arrays))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), atol=2e-5)
        assert np.abs(ours).max() > 1e-3
