"""The structure of weights: the support, the groups, and the starts of segments."""

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from regmax.arrays import A, AnyArray, Array, check_plain, framework, kept_first, namespace

_Booleans = TypeVar("_Booleans")
_Integers = TypeVar("_Integers")

if TYPE_CHECKING:  # Python 3.10 cannot make a named tuple generic

    class Groups(NamedTuple, Generic[_Booleans, _Integers]):
        """The result of `groups`; arrays of the weights' framework and shape."""

        support: _Booleans
        ids: _Integers
        starts: _Booleans

else:

    class Groups(NamedTuple):
        """The result of `groups`; arrays of the weights' framework and shape.

        Example:
            >>> import numpy as np, regmax
            >>> regmax.groups(np.array([0.0, 0.4, 0.4, 0.2])).support.tolist()
            [False, True, True, True]
        """

        support: Any  # True where a weight is not exactly zero
        ids: Any  # 0 outside the support; the members of a group share a number, counted from 1 in each row
        starts: Any  # True at the first position of each segment, and of each sequence of adjacent zeros


@overload
def groups(
    y: NDArray[Any], dim: int = -1, *, contiguous: bool = True, mask: AnyArray | None = None
) -> Groups[NDArray[np.bool_], NDArray[np.intp]]: ...
@overload
def groups(
    y: Array[A], dim: int = -1, *, contiguous: bool = True, mask: AnyArray | None = None
) -> Groups[A, A]: ...
def groups(y: Any, dim: int = -1, *, contiguous: bool = True, mask: Any = None) -> Any:
    """The support, and the groups of exactly equal weights: fused weights are equal to the last bit.

    Args:
        y: weights, a NumPy array or a torch tensor.
        dim: the dimension of the simplex.
        contiguous: True: groups are segments (fusedmax), numbered from the left; False: groups are clusters (oscarmax),
            numbered from the largest weight.
        mask: the mapping's mask, True = keep; deleted positions belong to no group, and their neighbours are adjacent.

    Returns:
        `Groups(support, ids, starts)`.

    Example:
        >>> import numpy as np, regmax
        >>> y = regmax.fusedmax(np.array([0.0, 1.0, 0.9, -1.0, 0.8]))
        >>> regmax.groups(y).ids.tolist()
        [0, 1, 1, 0, 2]
        >>> regmax.groups(y).starts.tolist()
        [True, True, False, True, True]
    """
    check_plain("groups(y)", y)
    xp = namespace(y)
    if framework(y) == "torch":
        y = y.detach()
    rows = xp.moveaxis(y, dim, -1)
    support = rows != 0
    if mask is not None:
        mask = xp.moveaxis(xp.broadcast_to(mask, y.shape), dim, -1)
        support = support & mask
    starts = _starts(rows, mask)
    ids = _run_ids(support, starts) if contiguous else _cluster_ids(rows, support)
    return Groups(*(xp.moveaxis(part, -1, dim) for part in (support, ids, starts)))


def _starts(y: Any, mask: Any) -> Any:
    xp = namespace(y)
    if mask is None:
        first = xp.ones_like(y[..., :1], dtype=bool if xp.__name__ == "numpy" else xp.bool)
        return xp.concatenate([first, y[..., 1:] != y[..., :-1]], -1)
    # Compact to the kept positions, compare neighbours, and scatter the result back.
    places = xp.broadcast_to(xp.arange(y.shape[-1]), y.shape)
    packed, kept = kept_first(y, mask)
    order, _ = kept_first(places, mask)
    answers = _starts(packed, None) & kept
    starts = xp.zeros_like(answers)
    if framework(y) == "torch":
        return starts.scatter(-1, order, answers)
    xp.put_along_axis(starts, order, answers, -1)
    return starts


def _run_ids(support: Any, starts: Any) -> Any:
    return (support & starts).cumsum(-1) * support


def _cluster_ids(y: Any, support: Any) -> Any:
    """The rank of each weight among its row's distinct weights, from the largest."""
    xp = namespace(y)
    key = xp.where(support, -abs(y), 0.0)
    order = key.argsort(-1)
    values = (
        xp.take_along_dim(key, order, -1) if framework(y) == "torch" else xp.take_along_axis(key, order, -1)
    )
    ranks = _starts(values, None).cumsum(-1)
    back = order.argsort(-1)
    ids = (
        xp.take_along_dim(ranks, back, -1) if framework(y) == "torch" else xp.take_along_axis(ranks, back, -1)
    )
    return ids * support
