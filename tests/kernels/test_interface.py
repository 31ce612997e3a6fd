"""The kernels' interface: the same call of `reference`, `native` and `tensors` gives the same rows."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch

from regmax.kernels import KERNELS, native, reference, tensors

Array = np.ndarray
N, D = 9, 13
THETAS = {
    "fusedmax": 0.1,
    "oscarmax": 0.02,
    "sqpnormmax": 1.5,
    "entmax": 1.5,
    "prox_tv1d": 0.2,
    "prox_oscar": 0.02,
}
RNG = np.random.default_rng(3)
X = 1.5 * RNG.normal(size=(N, D))
V = RNG.normal(size=(N, D))
KEEP = RNG.random((N, D)) < 0.7
KEEP[0] = False
PER_ROW = np.linspace(0.6, 1.2, N)
LEAST = {np.float32: float(np.finfo(np.float32).min), np.float64: float(np.finfo(np.float64).min)}


class OnTensors:
    """An implementation called with tensors, its answers given back as arrays."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def argmax(self, kernel: str, *arguments: Any, **options: Any) -> Array:
        return self._call(self.module.argmax, kernel, *arguments, **options)

    def jacobian_product(self, kernel: str, *arguments: Any, **options: Any) -> Array:
        return self._call(self.module.jacobian_product, kernel, *arguments, **options)

    def _call(self, function: Any, kernel: str, *arguments: Any, **options: Any) -> Array:
        result = function(
            kernel,
            *map(self._tensor, arguments),
            **{name: self._tensor(value) for name, value in options.items()},
        )
        assert isinstance(result, torch.Tensor)
        return result.numpy()

    @staticmethod
    def _tensor(value: Any) -> Any:
        return torch.tensor(value) if isinstance(value, np.ndarray) else value


IMPLEMENTATIONS = {
    "native": native,
    "native on tensors": OnTensors(native),
    "tensors": OnTensors(tensors),
}


@pytest.fixture(params=IMPLEMENTATIONS)
def implementation(request: pytest.FixtureRequest) -> Any:
    """All but the reference, with which they are compared."""
    return IMPLEMENTATIONS[request.param]


def strength(kernel: str, per_row: bool) -> Any:
    """The kernel's strength: None, a number, or one per row."""
    if kernel not in THETAS:
        return None
    return THETAS[kernel] * PER_ROW if per_row and kernel not in ("sqpnormmax", "entmax") else THETAS[kernel]


@pytest.mark.parametrize("module", [reference, native, tensors])
def test_the_signatures_are_those_of_the_design(module: Any) -> None:
    argmax = inspect.signature(module.argmax).parameters
    product = inspect.signature(module.jacobian_product).parameters
    assert list(argmax) == ["kernel", "x", "keep", "theta", "gamma"]
    assert list(product) == ["kernel", "y", "v", "keep", "theta", "gamma"]
    for parameters in (argmax, product):
        assert parameters["keep"].default is None
        assert parameters["theta"].default is None
        assert parameters["gamma"].default == 1.0
        assert parameters["gamma"].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.pairs
@pytest.mark.parametrize("gamma", [1.0, 0.3, 2.5, PER_ROW], ids=["1", "0.3", "2.5", "per row"])
@pytest.mark.parametrize("per_row", [False, True], ids=["number", "per row"])
@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_all_agree(
    implementation: Any, dtype: Any, kernel: str, masked: bool, per_row: bool, gamma: Any
) -> None:
    x, v, keep = X.astype(dtype), V.astype(dtype), KEEP if masked else None
    theta, tolerance = strength(kernel, per_row), 1e-12 if dtype is np.float64 else 2e-5
    expected = reference.argmax(kernel, x.astype(np.float64), keep, theta, gamma=gamma)
    y = implementation.argmax(kernel, x, keep, theta, gamma=gamma)
    assert y.dtype == dtype
    np.testing.assert_allclose(y, expected, rtol=0, atol=tolerance * 10)
    expected = reference.jacobian_product(kernel, y, v, keep, theta, gamma=gamma)
    product = implementation.jacobian_product(kernel, y, v, keep, theta, gamma=gamma)
    assert product.dtype == dtype
    np.testing.assert_allclose(product, expected, rtol=0, atol=tolerance * 50)


@pytest.mark.parametrize("kernel", KERNELS)
def test_gamma_divides_the_scores(kernel: str) -> None:
    theta = strength(kernel, per_row=False)
    y = reference.argmax(kernel, X, KEEP, theta, gamma=PER_ROW)
    np.testing.assert_allclose(y, reference.argmax(kernel, X / PER_ROW[:, None], KEEP, theta), atol=1e-14)
    product = reference.jacobian_product(kernel, y, V, KEEP, theta, gamma=PER_ROW)
    plain = reference.jacobian_product(kernel, y, V, KEEP, theta)
    np.testing.assert_allclose(product, plain / PER_ROW[:, None], atol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_gamma_deletes_a_low_score(implementation: Any, dtype: Any) -> None:
    # Deleted, the middle score would leave two neighbours, which fuse.
    x = np.array([[0.0, LEAST[dtype], 0.05]], dtype)
    separate = [[0.4, 0.0, 0.6]]
    y = implementation.argmax("fusedmax", x, None, 0.1, gamma=0.25)
    np.testing.assert_allclose(y, separate, atol=1e-6)
    y = implementation.argmax("sparsemax", x, None, None, gamma=1e-3)
    np.testing.assert_array_equal(y, [[0, 0, 1]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_gamma_spoils_a_high_score(implementation: Any, dtype: Any) -> None:
    x = np.array([[-LEAST[dtype], 0.0, -LEAST[dtype]]], dtype)
    y = implementation.argmax("oscarmax", x, None, 0.01, gamma=1e-3)
    np.testing.assert_array_equal(y, [[0.5, 0, 0.5]])


@pytest.mark.pairs
@pytest.mark.parametrize("gamma", [1.0, 0.5, np.full(4, 0.5)], ids=["1", "0.5", "per row"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_rows_without_a_result(implementation: Any, kernel: str, gamma: Any) -> None:
    nan, inf = np.nan, np.inf
    x = np.array([[nan, 1, 2], [inf, 1, -inf], [-inf, -inf, -inf], [1, 2, 3]])
    keep = np.array([[1, 1, 1], [1, 1, 1], [1, 1, 1], [0, 0, 0]], bool)
    y = implementation.argmax(kernel, x, keep, strength(kernel, False), gamma=gamma)
    assert np.isnan(y[:2]).all()
    assert (y[2:] == 0).all()


@pytest.mark.parametrize("kernel", KERNELS)
def test_strided_rows_and_broadcast_masks(implementation: Any, kernel: str) -> None:
    theta = strength(kernel, False)
    x, keep = X.T[:, ::2], KEEP.T[:1, ::2]
    np.testing.assert_allclose(
        implementation.argmax(kernel, x, keep, theta), reference.argmax(kernel, x, keep, theta), atol=1e-12
    )


@pytest.mark.parametrize(
    ("x", "got"), [(X[0], "float64 of shape"), (X.astype(int), "int64"), ([[1.0]], "list")]
)
def test_native_refuses_other_rows(x: Any, got: str) -> None:
    with pytest.raises(TypeError, match=rf"needs rows \(n, d\) of the CPU in float32 or float64. Got {got}"):
        native.argmax("sparsemax", x)


def test_native_refuses_arguments_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="needs y and v of one shape and type"):
        native.jacobian_product("sparsemax", X, V[:, 1:])
    with pytest.raises(ValueError, match=r"theta must be a number, or one per row, 9\. Got 3"):
        native.argmax("fusedmax", X, None, np.ones(3))
    with pytest.raises(TypeError, match="`keep` must be boolean"):
        native.argmax("fusedmax", X, np.ones((N, D)), 0.1)
    with pytest.raises(ValueError, match="strengths in range"):
        native.argmax("fusedmax", X)
