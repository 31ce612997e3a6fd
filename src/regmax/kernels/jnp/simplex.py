"""The mappings that need no pooling: softmax, the projection onto the simplex, sqpnormmax and entmax.

Scores may be shifted by a constant; deleted positions have a score of -inf. The derivations are in `tensors.simplex`.
"""

import jax.numpy as jnp
from jax import Array, lax

from regmax.kernels.jnp.rows import below_peak

_NEWTON_STEPS = 16  # see `tensors.simplex`
_NO_WEIGHT = 1000.0  # exp(-1000) underflows, and no entmax weight exceeds exp(-gap)


def softmax(x: Array) -> Array:
    """exp(x) / sum exp(x), and zeros in an empty row."""
    exponentials = jnp.exp(below_peak(x))
    return exponentials / jnp.maximum(exponentials.sum(-1, keepdims=True), 1)  # the peak's term is 1


def project_simplex(x: Array) -> Array:
    """Michelot's iteration: the threshold of a support that shrinks until it does not change.

    Scores more than 1 below the largest are never in the support: they are clamped to 1 below, the first threshold.
    """
    x = jnp.maximum(below_peak(x), -1)

    def shrink(state: tuple[Array, Array]) -> tuple[Array, Array]:
        tau, _ = state
        support = x > tau
        count = jnp.maximum(support.sum(-1, keepdims=True), 1).astype(x.dtype)
        # Monotone also after rounding, so that the loop ends.
        new = jnp.maximum((jnp.where(support, x, 0).sum(-1, keepdims=True) - 1) / count, tau)
        return new, (new > tau).any()

    tau = jnp.full_like(x[..., :1], -1)
    tau, _ = lax.while_loop(lambda state: state[1], shrink, (tau, jnp.array(True)))
    return jnp.maximum(x - tau, 0)


def squared_pnorm_argmax(x: Array, p: Array) -> Array:
    """y = r^(q-1) / sum r^(q-1) with r = (1 - gap / m)_+; m is the root of m S_(q-1) S_q^(2/q - 1) = 1."""
    q = p / (p - 1)
    gap = jnp.minimum(-below_peak(x), 1)
    most = jnp.ones_like(gap[..., :1])

    def step(_: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        m, low, high = state
        r, power = _ratios(gap, m, q - 2)
        s_0, s_1, s_2 = (s.sum(-1, keepdims=True) for s in (power, power * r, power * r * r))
        value = m * s_1 * s_2 ** (2 / q - 1)
        low, high = jnp.where(value < 1, m, low), jnp.where(value < 1, high, m)
        newton = m - m * (1 - 1 / value) / ((q - 1) * s_0 / s_1 - (q - 2) * s_1 / s_2)
        return jnp.clip(newton, low, high), low, high

    m, _, _ = lax.fori_loop(0, _NEWTON_STEPS, step, (most, most * x.shape[-1] ** (-2 / q), most))
    r, power = _ratios(gap, m, q - 2)
    y = power * r
    return y / y.sum(-1, keepdims=True)


def _ratios(gap: Array, m: Array, exponent: Array) -> tuple[Array, Array]:
    """Return r = (1 - gap / m)_+ and r^exponent, 0 outside the support even for exponent 0."""
    inside = gap < m
    share = jnp.where(inside, gap / m, 0)
    return jnp.where(inside, 1 - share, 0), jnp.where(inside, jnp.exp(exponent * jnp.log1p(-share)), 0)


def tsallis_argmax(x: Array, alpha: Array) -> Array:
    """y = r / sum r with r = (1 - a gap / m)_+^(1/a), a = alpha - 1; m is the root of m (sum r)^a = 1."""
    a = alpha - 1
    gap = jnp.minimum(-below_peak(x), _NO_WEIGHT)
    least = x.shape[-1] ** -a

    def step(_: Array, m: Array) -> Array:
        share, r = _tsallis_ratios(gap, m, a)
        total = r.sum(-1, keepdims=True)
        slope = (r / (1 - share)).sum(-1, keepdims=True)
        decrease = -jnp.expm1(-(jnp.log(m) + a * jnp.log(total))) * total / slope
        return jnp.maximum(m * (1 - jnp.maximum(decrease, 0)), least)

    m = lax.fori_loop(0, _NEWTON_STEPS, step, jnp.ones_like(gap[..., :1]))
    _, r = _tsallis_ratios(gap, m, a)
    return r / r.sum(-1, keepdims=True)


def _tsallis_ratios(gap: Array, m: Array, a: Array) -> tuple[Array, Array]:
    """Return a gap / m, 0 outside the support, and r, as exp(-(gap / m) log(1 - share) / -share)."""
    scaled = gap / m
    inside = a * scaled < 1
    share = jnp.where(inside, a * scaled, 0)
    growth = jnp.where(share > 0, -jnp.log1p(-share) / jnp.where(share > 0, share, 1), 1)
    return share, jnp.where(inside, jnp.exp(-scaled * growth), 0)
