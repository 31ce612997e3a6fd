"""Scores computed from weights.

A mapping depends on a row of scores only up to a constant, and softmax's weights y determine the scores up to a
constant: x = log y + const. So the scores are computed from the weights, which every model can return, however it
computes attention.
"""

import numpy as np
from numpy.typing import NDArray

# Models compute softmax in float32 even if the rest is float64: weights below float32's smallest number are zero.
_FAR = float(np.log(np.finfo(np.float32).smallest_subnormal))


def scores_of(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores whose softmax is y, (target, source), as float32 has them; positions masked by a causal model are -inf.

    Example:
        >>> scores_of(np.array([[1.0, 0.0], [0.25, 0.75]])).round(6).tolist()
        [[0.0, -inf], [-1.386294, -0.287682]]
    """
    zero = y == 0
    x = np.where(zero, _FAR, np.log(np.where(zero, 1.0, y)))
    causal = y.shape[0] == y.shape[1] and not np.triu(y, 1).any()
    rounded = x.astype(np.float32).astype(np.float64)  # the page stores float32 in half the room
    return np.where(np.triu(np.ones(y.shape, bool), 1), -np.inf, rounded) if causal else rounded
