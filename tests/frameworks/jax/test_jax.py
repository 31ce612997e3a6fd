"""The JAX front end against NumPy's, under JAX's transforms, with the core's handlers and with JAX operations only."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from points import interior
from table import DEFAULTS, Entry

import regmax
from regmax.mappings import MAPPINGS

jax = pytest.importorskip("jax")
jnp = jax.numpy

from regmax.frontends.jax import handlers  # noqa: E402

PATHS = ["core", "jnp"] if handlers.available() else ["jnp"]


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Programs call the core, or consist of JAX operations."""
    jax.clear_caches()
    if request.param == "jnp":
        monkeypatch.setattr(handlers, "available", lambda: False)
    yield request.param
    jax.clear_caches()


@pytest.fixture
def x64() -> Iterator[None]:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def rows(dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray]:
    """Rows with deleted scores, an empty row, and one with NaN."""
    rng = np.random.default_rng(0)
    x, mask = rng.normal(size=(5, 2, 70)).astype(dtype), rng.random((5, 1, 70)) > 0.2
    x[0, 0, 3], x[1, 0, 4], x[2, 1, 5] = -np.inf, np.nan, np.inf
    mask[1, 0, 4] = mask[2, 0, 5] = True
    mask[3] = False
    return x, mask


@pytest.mark.parametrize("name", MAPPINGS)
def test_float32_weights_are_numpy_s(name: str, path: str) -> None:
    x, mask = rows()
    function = getattr(regmax, name)
    y, expected = np.asarray(function(jnp.asarray(x), mask=jnp.asarray(mask))), function(x, mask=mask)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, expected, rtol=0, atol=2e-6)
    assert np.array_equal(y != 0, expected != 0)
    # Another dimension, and half precision.
    half = jnp.asarray(x, jnp.bfloat16)
    y = function(jnp.moveaxis(half, -1, 0), 0)
    expected = function(np.asarray(half, np.float32))
    assert y.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.moveaxis(np.asarray(y, np.float32), 0, -1), expected, rtol=1e-2, atol=1e-2)


DERIVATIVES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "jvp": lambda f, x, v: jax.jvp(f, (x,), (v,))[1],
    "grad": lambda f, x, v: jax.grad(lambda x: (f(x) * v).sum())(x),
}


@pytest.mark.parametrize("entry", DEFAULTS, ids=str)
def test_derivatives_are_differences(entry: Entry, path: str, x64: None) -> None:
    name = next(iter(entry.parameters), "gamma")
    theta = jnp.asarray(entry.parameters.get(name, 1.0))
    x, v = jnp.asarray(interior(entry, 2, 6)), jnp.asarray(np.random.default_rng(3).normal(size=(2, 6)))

    @jax.jit
    def function(x: Any, theta: Any) -> Any:
        return entry(x, **{name: theta})

    step = 1e-6
    wanted = (function(x + step * v, theta) - function(x - step * v, theta)) / (2 * step)
    found = jax.jvp(lambda x: function(x, theta), (x,), (v,))[1]
    np.testing.assert_allclose(found, wanted, atol=1e-7)
    assert np.abs(found).max() > 1e-3
    np.testing.assert_allclose(jax.vjp(lambda x: function(x, theta), x)[1](v)[0], wanted, atol=1e-7)
    by_theta = (function(x, theta + step) - function(x, theta - step)) / (2 * step)
    found = jax.grad(lambda t: (function(x, t) * v).sum())(theta)
    np.testing.assert_allclose(found, (by_theta * v).sum(), atol=1e-6)
    # Second order, by forward mode over reverse mode, and jacobians under vmap.
    first = jax.grad(lambda x: (function(x, theta) ** 2 * v).sum())
    second = jax.jvp(first, (x,), (v,))[1]
    np.testing.assert_allclose(second, (first(x + step * v) - first(x - step * v)) / (2 * step), atol=1e-6)
    jacobians = jax.vmap(jax.jacrev(lambda row: function(row, theta)))(x)
    np.testing.assert_allclose(jnp.einsum("nij,nj->ni", jacobians, v), wanted, atol=1e-7)


def test_vmap_over_any_argument(path: str) -> None:
    x, mask = rows()
    x, mask = jnp.asarray(x[:2, 0, :9]), jnp.asarray(mask[:2, 0, :9])
    lam = jnp.array([0.05, 0.3])
    one = lambda x, mask, lam: regmax.fusedmax(x, lam=lam, mask=mask)  # noqa: E731
    for dims in ((0, None, None), (None, 0, None), (None, None, 0), (0, 0, 0)):
        arguments = [part if dim == 0 else part[0] for part, dim in zip((x, mask, lam), dims, strict=True)]
        found = jax.vmap(one, in_axes=dims)(*arguments)
        for k in range(2):
            each = [part[k] if dim == 0 else part for part, dim in zip(arguments, dims, strict=True)]
            np.testing.assert_allclose(found[k], one(*each), atol=1e-7)


@pytest.mark.parametrize("entry", DEFAULTS, ids=str)
def test_the_framework_is_numpy_s(entry: Entry, x64: None) -> None:
    x = interior(entry, 3, 6)
    q, classes = regmax.softmax(2 * x), np.array([0, 3, 1])
    y = entry(x)
    calls: list[Callable[..., Any]] = [
        lambda x, y, q, c: regmax.regularized_max(entry.omega, x, gamma=2.0),
        lambda x, y, q, c: regmax.regularized_argmax(entry.omega, x, gamma=2.0),
        lambda x, y, q, c: regmax.duality_gap(entry.omega, x, q),
        lambda x, y, q, c: regmax.fenchel_young_loss(entry.omega, x, c),
        lambda x, y, q, c: regmax.fenchel_young_loss(entry.omega, x, q, gamma=0.5),
    ]
    for call in calls:
        expected = call(x, y, q, classes)
        arrays = [jnp.asarray(a) for a in (x, y, q, classes)]
        np.testing.assert_allclose(call(*arrays), expected, atol=1e-12)
        np.testing.assert_allclose(jax.jit(call)(*arrays), expected, atol=1e-9)
    gradient = jax.grad(lambda x: regmax.regularized_max(entry.omega, x).sum())(jnp.asarray(x))
    np.testing.assert_allclose(gradient, y, atol=1e-12)
    loss = jax.grad(lambda x: regmax.fenchel_young_loss(entry.omega, x, jnp.asarray(q)).sum())
    np.testing.assert_allclose(loss(jnp.asarray(x)), y - q, atol=1e-12)


@pytest.mark.parametrize("mapping", ["softmax", "fusedmax,lam=0.05"])
def test_attention_is_torch_s(mapping: str) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    q, k, v = (rng.normal(size=(2, heads, n, 8)).astype(np.float32) for heads, n in ((4, 5), (2, 7), (2, 7)))
    mask, bias = rng.random((2, 1, 1, 7)) > 0.2, rng.normal(size=(4, 5, 7)).astype(np.float32)
    options: dict[str, Any] = {"mapping": mapping, "enable_gqa": True, "is_causal": True}
    expected, weights = regmax.attention(
        *map(torch.tensor, (q, k, v)),
        mask=torch.tensor(mask),
        bias=torch.tensor(bias),
        return_weights=True,
        **options,
    )
    out, y = regmax.attention(
        *map(jnp.asarray, (q, k, v)), mask=mask, bias=jnp.asarray(bias), return_weights=True, **options
    )
    np.testing.assert_allclose(out, expected.numpy(), atol=2e-6)
    np.testing.assert_allclose(y, weights.numpy(), atol=2e-6)


def test_errors_are_raised_at_the_entry() -> None:
    x = jnp.zeros((2, 3))
    with pytest.raises(
        ValueError, match=r"`fusedmax\(..., lam=...\)` must be non-negative and finite. Got -1"
    ):
        regmax.fusedmax(x, lam=jnp.array(-1.0))
    with pytest.raises(TypeError, match=r"`sparsemax\(...\)` needs floating-point scores. Got int32"):
        regmax.sparsemax(jnp.zeros(3, int))
    with pytest.raises(IndexError, match=r"class indices must lie in 0 to 2\. Got 3"):
        regmax.fenchel_young_loss("sparsemax", x, jnp.array([0, 3]))
    with pytest.raises(ValueError, match=r"dropout_p=...\)` must be 0 for JAX arrays. Got 0.1"):
        regmax.attention(x, x, x, dropout_p=0.1)
    with pytest.raises(TypeError, match=r"`prox_owl\(x, weights\)` needs a NumPy array or a torch tensor"):
        regmax.prox_owl(x, x[0])


def test_importing_regmax_imports_no_jax() -> None:
    code = "import sys, regmax, numpy; regmax.fusedmax(numpy.zeros(3)); sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
