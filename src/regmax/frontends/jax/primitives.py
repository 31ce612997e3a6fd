"""The mappings as JAX primitives: y = Pi(x; theta), dy = J (dx - dtheta g), with g = d/dtheta grad Omega(y).

`weights_p` maps rows. `product_p` is J v: linear in v and symmetric, hence its own transpose. For sparsemax, fusedmax
and oscarmax J is constant around almost every x, and the product is its own derivative; otherwise its derivative is
that of the JAX operations. On the CPU both are calls of the core if the handlers were built, elsewhere JAX operations.

The core also writes `bits`, the structure of each row for the product (csrc/regmax.h): two arrays of 32-bit words, of
size 0 if they will not be read. A mask or strength that is absent has size 0 along the last dimension.
"""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from regmax.frontends.jax import handlers
from regmax.kernels import KERNELS, native
from regmax.kernels import jnp as kernels

weights_p = Primitive("regmax_weights")
weights_p.multiple_results = True
product_p = Primitive("regmax_product")

# Below this many scores the core reads a row's weights as fast as its bits.
_FEW = {"sqpnormmax": 129, "entmax": 129}


def argmax(x: Array, keep: Array | None, theta: Any, kernel: str) -> Array:
    """Pi(x; theta) on rows, differentiable any number of times; a mask and a strength have the rank of x."""
    keep = jnp.zeros((1,) * (x.ndim - 1) + (0,), bool) if keep is None else keep
    number = theta if isinstance(theta, int | float) else None
    thetas = jnp.zeros((1,) * (x.ndim - 1) + (0,), x.dtype) if number is not None or theta is None else theta
    return weights_p.bind(x, keep, thetas, kernel=kernel, theta=number, bits=False)[0]


def _absent(part: Array) -> bool:
    return part.shape[-1] == 0


def _word_counts(d: int, kernel: str, bits: bool) -> tuple[int, int]:
    """The number of words per row of `support` and of `joined`."""
    chained = kernel in native.CHAINED
    if not bits or not (chained or d >= _FEW.get(kernel, 64)):
        return 0, 0
    words = 2 * ((d + 63) // 64)
    return words, words if chained or kernel == "oscarmax" else 0


def _strength(thetas: Array, theta: float | None) -> Any:
    return theta if _absent(thetas) else thetas


# --- Lowering ---------------------------------------------------------------------------------------------------


def _weights_by_jnp(
    x: Array, keep: Array, thetas: Array, *, kernel: str, theta: float | None, bits: bool
) -> list[Array]:
    mask = None if _absent(keep) else keep
    y = kernels.argmax(kernel, x, mask, _strength(thetas, theta))
    words = _word_counts(x.shape[-1], kernel, bits)
    return [y, *(jnp.zeros((*x.shape[:-1], count), jnp.uint32) for count in words)]


def _product_by_jnp(
    v: Array,
    y: Array,
    support: Array,
    joined: Array,
    keep: Array,
    thetas: Array,
    *,
    kernel: str,
    theta: float | None,
) -> Array:
    return kernels.jacobian_product(kernel, y, v, None if _absent(keep) else keep, _strength(thetas, theta))


def _full(part: Array, shape: tuple[int, ...]) -> Array:
    """A mask or strength for every row, unless it is absent."""
    return part if _absent(part) else jnp.broadcast_to(part, shape)


def _weights_by_core(
    x: Array, keep: Array, thetas: Array, *, kernel: str, theta: float | None, bits: bool
) -> list[Array]:
    words = _word_counts(x.shape[-1], kernel, bits)
    results = (
        jax.ShapeDtypeStruct(x.shape, x.dtype),
        *(jax.ShapeDtypeStruct((*x.shape[:-1], count), jnp.uint32) for count in words),
    )
    rows = (*x.shape[:-1], 1)
    call = jax.ffi.ffi_call(handlers.WEIGHTS, results)
    return call(x, _full(keep, x.shape), _full(thetas, rows), **_attributes(kernel, theta))


def _product_by_core(
    v: Array,
    y: Array,
    support: Array,
    joined: Array,
    keep: Array,
    thetas: Array,
    *,
    kernel: str,
    theta: float | None,
) -> Array:
    # With bits, neither the mask nor which scores are -inf is read.
    keep = keep[..., :0] if not _absent(support) else _full(keep, y.shape)
    call = jax.ffi.ffi_call(handlers.PRODUCT, jax.ShapeDtypeStruct(y.shape, y.dtype))
    thetas = _full(thetas, (*y.shape[:-1], 1))
    return call(v, y, support, joined, keep, thetas, **_attributes(kernel, theta))


def _attributes(kernel: str, theta: float | None) -> dict[str, Any]:
    return {"kernel": np.int32(native.CODES[kernel]), "theta": np.float64(0.0 if theta is None else theta)}


def _on_cpu(by_core: Any, by_jnp: Any) -> Any:
    """Choose when a program is lowered, because the handlers are registered at the first call."""

    def lower(*operands: Array, kernel: str, **attributes: Any) -> Any:
        core = kernel in native.CODES and handlers.available() and operands[0].dtype in _CORE_TYPES
        return (by_core if core else by_jnp)(*operands, kernel=kernel, **attributes)

    return lower


_CORE_TYPES = (np.dtype("float32"), np.dtype("float64"))

for _primitive, _by_jnp, _by_core in (
    (weights_p, _weights_by_jnp, _weights_by_core),
    (product_p, _product_by_jnp, _product_by_core),
):
    _several = _primitive is weights_p
    mlir.register_lowering(_primitive, mlir.lower_fun(_by_jnp, multiple_results=_several))
    mlir.register_lowering(
        _primitive, mlir.lower_fun(_on_cpu(_by_core, _by_jnp), multiple_results=_several), platform="cpu"
    )


# --- Evaluation outside of jit, and shapes ----------------------------------------------------------------------


@cache
def _compiled(primitive: Primitive, attributes: tuple[tuple[str, Any], ...]) -> Any:
    return jax.jit(partial(primitive.bind, **dict(attributes)))


for _primitive in (weights_p, product_p):
    _primitive.def_impl(
        lambda *operands, _own=_primitive, **attributes: _compiled(_own, tuple(attributes.items()))(*operands)
    )


def _weights_shapes(x: Any, keep: Any, thetas: Any, *, kernel: str, theta: Any, bits: bool) -> list[Any]:
    words = _word_counts(x.shape[-1], kernel, bits)
    y = x.update(weak_type=False)
    return [y, *(y.update(shape=(*x.shape[:-1], n), dtype=np.dtype("uint32")) for n in words)]


weights_p.def_abstract_eval(_weights_shapes)
product_p.def_abstract_eval(lambda v, *operands, **attributes: v.update(weak_type=False))


# --- Derivatives ------------------------------------------------------------------------------------------------


def _no_tangent(part: Any) -> Any:
    return ad.Zero(jax.typeof(part).to_tangent_aval())


def _weights_jvp(
    primals: Any, tangents: Any, *, kernel: str, theta: float | None, bits: bool
) -> tuple[Any, Any]:
    x, keep, thetas = primals
    v, _, dtheta = tangents
    y, support, joined = weights_p.bind(x, keep, thetas, kernel=kernel, theta=theta, bits=True)
    finite = x != -jnp.inf  # deleted positions, which JAX operations cannot see in y
    kept = finite if _absent(keep) else finite & keep
    out = [y, support, joined] if bits else [y, support[..., :0], joined[..., :0]]
    learned = type(dtheta) is not ad.Zero and not _absent(thetas)
    if type(v) is ad.Zero and not learned:
        return out, [_no_tangent(part) for part in out]
    direction = jnp.zeros_like(x) if type(v) is ad.Zero else v
    if learned:
        direction = direction - dtheta * kernels.theta_gradient(kernel, y, kept, thetas)
    tangent = product_p.bind(direction, y, support, joined, kept, thetas, kernel=kernel, theta=theta)
    return out, [tangent, *(_no_tangent(part) for part in out[1:])]


def _product_jvp(primals: Any, tangents: Any, *, kernel: str, theta: float | None) -> tuple[Any, Any]:
    v, y, support, joined, keep, thetas = primals
    bind = partial(product_p.bind, kernel=kernel, theta=theta)
    out = bind(*primals)
    dv, dy, *_, dtheta = tangents
    parts = []
    if type(dv) is not ad.Zero:
        parts.append(bind(dv, *primals[1:]))
    varies = not KERNELS[kernel].constant_jacobian
    learned = type(dtheta) is not ad.Zero and not _absent(thetas)
    if varies and (type(dy) is not ad.Zero or learned):

        def product(y: Array, thetas: Array) -> Array:
            return _product_by_jnp(v, y, support, joined, keep, thetas, kernel=kernel, theta=theta)

        moved = [jnp.zeros_like(p) if type(t) is ad.Zero else t for p, t in ((y, dy), (thetas, dtheta))]
        parts.append(jax.jvp(product, (y, thetas), tuple(moved))[1])
    return out, sum(parts[1:], parts[0]) if parts else _no_tangent(out)


def _product_transpose(cotangent: Any, v: Any, *others: Any, kernel: str, theta: float | None) -> list[Any]:
    if type(cotangent) is not ad.Zero:
        cotangent = product_p.bind(cotangent, *others, kernel=kernel, theta=theta)
    return [cotangent, *(None for _ in others)]


ad.primitive_jvps[weights_p] = _weights_jvp
ad.primitive_jvps[product_p] = _product_jvp
ad.primitive_transposes[product_p] = _product_transpose


# --- Batching ---------------------------------------------------------------------------------------------------


def _batch(primitive: Any, rows: int, operands: Any, dims: Any, **attributes: Any) -> tuple[Any, Any]:
    """The batch becomes the first dimension; the first `rows` operands need it, the others broadcast."""
    size = next(x.shape[dim] for x, dim in zip(operands, dims, strict=True) if dim is not None)
    moved = []
    for number, (x, dim) in enumerate(zip(operands, dims, strict=True)):
        if dim is not None:
            moved.append(jnp.moveaxis(x, dim, 0))
        elif number < rows:
            moved.append(jnp.broadcast_to(x, (size, *x.shape)))
        else:
            moved.append(jnp.expand_dims(x, 0))
    out = primitive.bind(*moved, **attributes)
    return out, [0] * len(out) if primitive.multiple_results else 0


batching.primitive_batchers[weights_p] = partial(_batch, weights_p, 1)
batching.primitive_batchers[product_p] = partial(_batch, product_p, 4)
