"""Every mapping under JAX's transforms, with the core's handlers and with JAX operations only."""

from __future__ import annotations

from collections.abc import Iterator
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


@pytest.fixture(params=PATHS, scope="module")
def path(request: pytest.FixtureRequest) -> Iterator[str]:
    """Programs call the core, or consist of JAX operations; tests of one path share what they compile."""
    jax.clear_caches()
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "jnp":
            patch.setattr(handlers, "available", lambda: False)
        yield request.param
    jax.clear_caches()


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


@pytest.mark.parametrize("entry", DEFAULTS, ids=str)
def test_derivatives_are_differences(entry: Entry, path: str, x64: None) -> None:
    name = next(iter(entry.parameters), "gamma")
    theta = jnp.asarray(entry.parameters.get(name, 1.0))
    x, v = jnp.asarray(interior(entry, 2, 6)), jnp.asarray(np.random.default_rng(3).normal(size=(2, 6)))

    def function(x: Any, theta: Any) -> Any:
        return entry(x, **{name: theta})

    @jax.jit
    def derivatives(x: Any, theta: Any) -> dict[str, Any]:
        """All in one program, which is compiled once."""
        y, forward = jax.jvp(lambda x: function(x, theta), (x,), (v,))
        backward, by_theta = jax.vjp(function, x, theta)[1](v)
        # Second order by forward mode over reverse mode, and jacobians under vmap.
        first, second = jax.jvp(jax.grad(lambda x: (function(x, theta) ** 2 * v).sum()), (x,), (v,))
        jacobians = jax.vmap(jax.jacrev(lambda row: function(row, theta)))(x)
        by_rows = jnp.einsum("nij,nj->ni", jacobians, v)
        return {
            "y": y,
            "forward": forward,
            "backward": backward,
            "by_theta": by_theta,
            "first": first,
            "second": second,
            "by_rows": by_rows,
        }

    step = 1e-6
    found = derivatives(x, theta)
    above, below = derivatives(x + step * v, theta), derivatives(x - step * v, theta)
    wanted = (above["y"] - below["y"]) / (2 * step)
    for way in ("forward", "backward", "by_rows"):
        np.testing.assert_allclose(found[way], wanted, atol=1e-7)
    assert np.abs(found["forward"]).max() > 1e-3
    np.testing.assert_allclose(found["second"], (above["first"] - below["first"]) / (2 * step), atol=1e-6)
    stronger, weaker = derivatives(x, theta + step)["y"], derivatives(x, theta - step)["y"]
    np.testing.assert_allclose(found["by_theta"], ((stronger - weaker) / (2 * step) * v).sum(), atol=1e-6)
    np.testing.assert_allclose(function(x, theta), found["y"], atol=1e-12)  # compiled inside


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
