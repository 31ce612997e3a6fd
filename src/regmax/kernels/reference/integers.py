"""Pooling and projection in exact arithmetic.

A floating-point number is an integer times a power of two, so a row of them is a row of integers on one scale. The
three algorithms below add, multiply and compare integers only; every comparison is exact, however far apart the
scores are, and a result is rounded once, when it is divided.

A *pool* is a set of positions that share one value, written as (total, count): the value is total / count.
"""

import sys
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

Pool = tuple[int, int]
Point = tuple[int, int]


def on_one_scale(numbers: Iterable[tuple[int, int]]) -> list[int]:
    """Return integers proportional to `numbers`, ratios whose denominators are powers of two."""
    ratios = list(numbers)
    scale = max(denominator for _, denominator in ratios)
    return [numerator * (scale // denominator) for numerator, denominator in ratios]


def rounded(numerator: int, denominator: int) -> float:
    """The float64 nearest to numerator / denominator; Python rounds the quotient of two integers correctly."""
    try:
        return numerator / denominator
    except OverflowError:
        return sys.float_info.max if numerator > 0 else -sys.float_info.max


def project_simplex(pools: Sequence[Pool], unit: int) -> list[float]:
    """The projection of the pools' values, in units of `unit`, on the simplex (Michelot, 1986).

    The threshold of all pools is at most that of the support, so pools that do not exceed it have no weight. Without
    them the threshold rises; once all remaining pools exceed it, they are the support.
    """
    support = list(pools)
    while True:
        excess, size = sum(total for total, _ in support) - unit, sum(count for _, count in support)
        above = [(total, count) for total, count in support if total * size > excess * count]
        if len(above) == len(support):
            break
        support = above
    return [max(total * size - excess * count, 0) / (count * size * unit) for total, count in pools]


def isotonic_decreasing(x: Iterable[int]) -> list[Pool]:
    """The nearest strictly decreasing sequence of pools, by pooling adjacent violators; ties are pooled."""
    pools: list[Pool] = []
    for total in x:
        count = 1
        while pools and pools[-1][0] * count <= total * pools[-1][1]:  # the last pool's mean is not larger
            before, size = pools.pop()
            total, count = total + before, count + size
        pools.append((total, count))
    return pools


def total_variation(x: Sequence[int], lam: int) -> list[Pool]:
    """argmin_z 1/2 |z - x|^2 + lam sum |z_i+1 - z_i| as its segments from left to right, by the taut string.

    The cumulative sums x_1 + ... + x_i, shifted by -lam and by lam, bound a tube whose ends are fixed. The shortest
    string through the tube has slope z_i in its i-th step (Davies and Kovac, 2001). Beyond the last knot a chain of
    bends is kept along each side of the tube: convex below the upper bounds, concave above the lower ones. If the
    opposite chain blocks the straight line from the last knot to a new bound, its first bends become knots.
    """
    d, sums = len(x), list(accumulate(x))
    knots: list[Point] = [(0, 0)]
    chains: dict[int, deque[Point]] = {+1: deque(), -1: deque()}
    for i, height in enumerate(sums, start=1):
        for side in (+1, -1):
            bound = (i, height + side * lam if i < d else height)
            chain, opposite = chains[side], chains[-side]
            while chain and side * _turn(chain[-2] if len(chain) > 1 else knots[-1], chain[-1], bound) <= 0:
                chain.pop()
            while not chain and opposite and side * _turn(knots[-1], opposite[0], bound) < 0:
                knots.append(opposite.popleft())
            chain.append(bound)
    knots.append((d, sums[-1]))
    return _segments(knots)


def _turn(a: Point, b: Point, c: Point) -> int:
    """Positive if c lies above the line from a to b, negative below, zero on it: the only predicate that is needed."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def _segments(knots: Sequence[Point]) -> list[Pool]:
    """The segments of the string between its knots; adjacent segments of equal slope are merged."""
    segments: list[Pool] = []
    for start, end in pairwise(knots):
        total, count = end[1] - start[1], end[0] - start[0]
        if segments and segments[-1][0] * count == total * segments[-1][1]:
            before, size = segments.pop()
            total, count = total + before, count + size
        segments.append((total, count))
    return segments
