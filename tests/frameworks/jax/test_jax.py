"""The JAX front end against NumPy's and torch's: the framework, losses, attention and errors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from points import interior
from table import DEFAULTS, Entry

import regmax

jax = pytest.importorskip("jax")
jnp = jax.numpy

from regmax.frontends.jax import handlers  # noqa: E402


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


@pytest.mark.skipif(not handlers.available(), reason="needs the core's handlers")
def test_large_calls_are_divided_on_xla_s_threads() -> None:
    """Also from several threads at once, each with a mask and a strength per row: NumPy's bits."""
    rng = np.random.default_rng(0)
    x, mask = rng.normal(size=(2048, 128)).astype(np.float32), rng.random((2048, 128)) > 0.3
    lam = rng.uniform(0, 0.3, (2048, 1)).astype(np.float32)
    v = rng.normal(size=x.shape).astype(np.float32)

    @jax.jit
    def both(x: Any, mask: Any, lam: Any, v: Any) -> Any:
        y, transpose = jax.vjp(lambda x: regmax.fusedmax(x, lam=lam, mask=mask), x)
        return y, transpose(v)[0]

    shifted = [[np.roll(part, shift, 0) for part in (x, mask, lam, v)] for shift in range(6)]
    with ThreadPoolExecutor(max_workers=3) as pool:
        found = list(pool.map(lambda parts: both(*parts), shifted))
    y = regmax.fusedmax(x, lam=lam, mask=mask)
    for shift, (weights, product) in enumerate(found):
        np.testing.assert_array_equal(weights, np.roll(y, shift, 0))
        np.testing.assert_array_equal(np.roll(product, -shift, 0), found[0][1])


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
