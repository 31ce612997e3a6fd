"""The projection onto the capped simplex, argmin 1/2 ||y - x||^2 subject to 0 <= y <= u and sum y = c, of rows.

The solution is y = clip(x - tau, 0, u), and f(tau) = sum clip(x - tau, 0, u) decreases, with breakpoints x_i and
x_i - u_i. A binary search finds the largest breakpoint t with f(t) >= c. Between t and the next one f is linear, with
the slope of the coordinates that are free there; comparing breakpoints tells which ones these are.

For scores far from 0, x_i - u_i is rounded coarsely: the search is repeated for x - t, whose free entries are of
the size of u. The sums that decide are compensated, so that the error is a few units in the last place of u.

NumPy arrays and tensors are accepted; no entry is read, so there is no branch on values.
"""

from math import ceil, log2
from typing import Any

from regmax.arrays import framework, namespace, sort_descending

_CORRECTIONS = 2


def project(x: Any, upper: Any, total: Any) -> Any:
    """Project rows x (..., d), with `upper` (..., d) and `total` (..., 1), all in float64.

    Scores of -inf are deleted. Rows with NaN or +inf are NaN. Infeasible rows are not detected.

    >>> import numpy as np
    >>> project(np.array([[1.0, 0.9, -0.6]]), np.array([[0.5, 1.0, 1.0]]), np.array([[1.0]]))
    array([[0.5, 0.5, 0. ]])
    """
    xp = namespace(x)
    deleted = x == -float("inf")
    bad = ~(xp.amax(x, -1)[..., None] < float("inf"))  # NaN compares False too
    # No weight exceeds the total; an infinite upper bound becomes finite.
    upper = xp.where(deleted, 0.0, xp.minimum(upper, total))
    most = xp.finfo(x.dtype).max / 4  # differences do not overflow
    x = xp.where(deleted | bad, 0.0, x).clip(-most, most)
    x = x - _reached(x, upper, total)
    t = _reached(x, upper, total)
    free, at_upper = (x > t) & (x - upper <= t), x - upper > t
    y = _solved(x - t, upper, total, free, at_upper)
    return xp.where(bad, float("nan"), y)


def _clipped(difference: Any, upper: Any) -> Any:
    return namespace(upper).minimum(difference.clip(min=0.0), upper)


def _reached(x: Any, upper: Any, total: Any) -> Any:
    """The largest breakpoint whose f is at least the total, (..., 1)."""
    xp = namespace(x)
    breakpoints = sort_descending(xp.concatenate((x, x - upper), -1))
    low = xp.zeros_like(x[..., :1], dtype=xp.int64)
    high = low + (breakpoints.shape[-1] - 1)
    for _ in range(ceil(log2(breakpoints.shape[-1]))):
        middle = (low + high) // 2
        f = _clipped(x - _take(breakpoints, middle), upper).sum(-1)[..., None]
        enough = f >= total
        high = xp.where(enough, middle, high)
        low = xp.minimum(xp.where(enough, low, middle + 1), high)
    return _take(breakpoints, high)


def _solved(x: Any, upper: Any, total: Any, free: Any, at_upper: Any) -> Any:
    """clip(x - shift, 0, upper) with the shift that makes the sum `total`; near it these coordinates are free."""
    xp = namespace(x)
    y = xp.where(free, x, xp.where(at_upper, upper, 0.0))
    shift, moving = xp.zeros_like(x[..., :1]), free
    for _ in range(_CORRECTIONS + 1):
        high, low = _compensated_sum(y)
        count = moving.sum(-1)[..., None]
        shift = shift + xp.where(count > 0, ((high - total) + low) / count.clip(min=1), 0.0)
        moved = x - shift
        y = xp.where(at_upper, upper, xp.where(free, _clipped(moved, upper), 0.0))
        # The sums of the search are rounded, so it may have found the segment beside: a coordinate is then clipped.
        moving = free & (moved > 0) & (moved < upper)
    return y


def _compensated_sum(x: Any) -> tuple[Any, Any]:
    """The sum along the last dimension as two numbers: pairs are added, and the errors of these additions."""
    xp = namespace(x)
    error = xp.zeros_like(x[..., :1])
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        s = a + b
        part = s - a
        error = error + ((a - (s - part)) + (b - part)).sum(-1)[..., None]
        x = xp.concatenate((s, rest), -1)
    return x, error


def _take(x: Any, index: Any) -> Any:
    xp = namespace(x)
    return (xp.take_along_dim if framework(x) == "torch" else xp.take_along_axis)(x, index, -1)
