"""Groups of neighbours, and the two problems that fuse neighbours: isotonic regression and total variation.

Both start from one group per row and split groups until none splits, all groups of all rows at once. A group that is
fused has the mean of its scores and of the forces of its neighbours. Total variation splits a group at its level set
{z > mean}, which maximises sum_{i in S} (x_i - mean) minus the edges that S cuts; isotonic regression splits it at the
point of the cumulative sums that is highest above the chord. The number of rounds is that of nested level sets, about
log2(d).
"""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
from jax import Array, lax

_ROUNDING = 8.0  # units in the last place: a smaller gain is no reason to split

Parts = tuple[Array, ...]


def preceding(x: Array) -> Array:
    """Entry i of the result is entry i - 1; the first is repeated."""
    return jnp.concatenate([x[..., :1], x[..., :-1]], -1)


def following(x: Array) -> Array:
    """Entry i of the result is entry i + 1; the last is repeated."""
    return jnp.concatenate([x[..., 1:], x[..., -1:]], -1)


def equal_neighbours(x: Array) -> Array:
    """True where a value equals the one before it."""
    return (x == preceding(x)) & (jnp.arange(x.shape[-1]) > 0)


def scan(combine: Callable[[Parts, Parts], Parts], parts: Parts, neutral: Sequence[float]) -> Parts:
    """The running composition of `parts` along the last dimension, by doubling: log2(d) steps on whole rows.

    A loop with shifts of variable size compiles and runs faster on CPUs than `lax.associative_scan`.
    """
    d = parts[0].shape[-1]
    axis = parts[0].ndim - 1

    def step(k: Array, parts: Parts) -> Parts:
        reach = jnp.left_shift(1, k)
        earlier = tuple(
            lax.dynamic_slice_in_dim(jnp.concatenate([jnp.full_like(p, e), p], -1), d - reach, d, axis)
            for p, e in zip(parts, neutral, strict=True)
        )
        return combine(earlier, parts)

    return lax.fori_loop(0, (d - 1).bit_length(), step, parts)


def _add_in_group(earlier: Parts, later: Parts) -> Parts:
    (a, stop_a), (b, stop_b) = earlier, later
    return jnp.where(stop_b, b, a + b), stop_a | stop_b


def _max_in_group(earlier: Parts, later: Parts) -> Parts:
    (a, stop_a), (b, stop_b) = earlier, later
    return jnp.where(stop_b, b, jnp.maximum(a, b)), stop_a | stop_b


def _clip_after(earlier: Parts, later: Parts) -> Parts:
    """Steps u -> clip(u + s, low, high) compose to such a step."""
    (s_1, low_1, high_1), (s_2, low_2, high_2) = earlier, later
    return s_1 + s_2, jnp.clip(low_1 + s_2, low_2, high_2), jnp.clip(high_1 + s_2, low_2, high_2)


class Groups:
    """Consecutive groups of positions, given by where they start."""

    def __init__(self, starts: Array) -> None:
        d, axis = starts.shape[-1], starts.ndim - 1
        index = jnp.broadcast_to(jnp.arange(d), starts.shape)
        self.starts = starts
        self.ends = following(starts) | (index == d - 1)
        self.first = lax.cummax(jnp.where(starts, index, 0), axis)
        self.last = lax.cummin(jnp.where(self.ends, index, d), axis, reverse=True)

    def sums(self, x: Array) -> Array:
        """Cumulative sums that begin anew in every group: only the group's own rounding errors."""
        return scan(_add_in_group, (x, self.starts), (0.0, False))[0]

    def means(self, x: Array) -> Array:
        """The mean of every group at each of its positions."""
        return self._of_last(self.sums(x)) / (self.last - self.first + 1).astype(x.dtype)

    def largest(self, x: Array) -> Array:
        """The largest value of every group at each of its positions."""
        return self._of_last(scan(_max_in_group, (x, self.starts), (-jnp.inf, False))[0])

    def centred(self, x: Array) -> Array:
        """The scores less their group's mean; the second difference removes the first one's rounding error."""
        w = x - self.means(x)
        return w - self.means(w)

    def _of_last(self, x: Array) -> Array:
        return jnp.take_along_axis(x, self.last, -1)


def equalized(z: Array, joined: Array) -> Array:
    """Give `joined` neighbours, which rounding may have separated, one value: that of the first in their group."""
    return first_values(z, equal_neighbours(z) | joined)


def first_values(x: Array, joined: Array) -> Array:
    """Return at every position the first value of its group."""
    index = jnp.arange(x.shape[-1])
    first = lax.cummax(jnp.where(joined, 0, index), joined.ndim - 1)
    return jnp.take_along_axis(x, jnp.broadcast_to(first, x.shape), -1)


def total_variation(x: Array, edges: Array) -> Array:
    """Return argmin_z 1/2 |z - x|^2 + sum_i edges_i |z_i - z_i-1| for every row; the first edge is 0."""
    edges = jnp.broadcast_to(edges, x.shape)
    tolerance = _ROUNDING * jnp.finfo(x.dtype).eps

    def split(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        starts, forces, _ = state
        groups = Groups(starts)
        free = jnp.where(starts, 0, edges)
        w = groups.centred(x + forces)
        # u_i = w_i + clip(u_i-1, -free_i, free_i): how much a position gains by being above the mean.
        _, u, _ = scan(_clip_after, (w, w - free, w + free), (0.0, -jnp.inf, jnp.inf))
        before = jnp.where(starts, 0, preceding(u))
        slack = free + tolerance * (free + abs(before))
        # Position i - 1 is above if its gain exceeds the edge, below if its loss does; else it follows position i.
        ends = groups.ends
        upper = jnp.where(ends, u > 0, following(before > slack))
        decided = ends | following(abs(before) > slack)
        index = jnp.arange(x.shape[-1])
        source = lax.cummin(jnp.where(decided, index, x.shape[-1]), decided.ndim - 1, reverse=True)
        inside = jnp.take_along_axis(upper, source, -1)
        cut = (inside != preceding(inside)) & ~starts
        pull = jnp.where(cut, jnp.where(inside, -edges, edges), 0)
        return starts | cut, forces + pull - jnp.where(ends, 0, following(pull)), cut.any()

    starts = (jnp.arange(x.shape[-1]) == 0) | (edges == 0)
    state = lax.while_loop(lambda state: state[2], split, (starts, jnp.zeros_like(x), jnp.array(True)))
    z = Groups(state[0]).means(x + state[1])
    return equalized(z, equal_neighbours(x) & (edges > 0))


def isotonic_decreasing(x: Array) -> Array:
    """Return the nearest decreasing sequence to every row: argmin |z - x|^2 with z_1 >= z_2 >= ... >= z_d."""
    tolerance = _ROUNDING * jnp.finfo(x.dtype).eps

    def split(state: tuple[Array, Array]) -> tuple[Array, Array]:
        groups = Groups(state[0])
        w = groups.centred(x)
        height = groups.sums(w)  # of the cumulative sums above the chord
        noise = tolerance * groups.sums(abs(w))
        height = jnp.where(groups.ends | (height <= noise), 0, height)
        highest = groups.largest(height)
        cut = preceding((height == highest) & (highest > 0)) & ~groups.starts
        return groups.starts | cut, cut.any()

    starts = jnp.broadcast_to(jnp.arange(x.shape[-1]) == 0, x.shape)
    starts, _ = lax.while_loop(lambda state: state[1], split, (starts, jnp.array(True)))
    return equalized(Groups(starts).means(x), equal_neighbours(x))
