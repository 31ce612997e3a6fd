"""Fenchel-Young losses: for every regularizer the loss whose gradient is the mapping's weights minus the target.

    L(x; q) = max_Omega(x) + gamma Omega(q) - <x, q>  >=  0,    zero if and only if q = Pi_Omega(x)

(Blondel, Martins and Niculae, 2020). softmax has the cross entropy; sparse mappings have losses with a margin.
"""

from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from regmax.arrays import A, AnyArray, Array, Strength, is_array, namespace
from regmax.frontends import frontend
from regmax.functional import regularizer_of
from regmax.regularizers import Regularizer
from regmax.resolver import MappingLike, resolve

F = TypeVar("F", bound=np.floating[Any])


@overload
def fenchel_young_loss(
    omega: MappingLike,
    scores: NDArray[F],
    target: AnyArray | int,
    dim: int = -1,
    *,
    gamma: Strength = 1.0,
    mask: AnyArray | None = None,
) -> NDArray[F]: ...
@overload
def fenchel_young_loss(
    omega: MappingLike,
    scores: Array[A],
    target: AnyArray | int,
    dim: int = -1,
    *,
    gamma: Strength = 1.0,
    mask: AnyArray | None = None,
) -> A: ...
def fenchel_young_loss(
    omega: MappingLike,
    scores: Any,
    target: Any,
    dim: int = -1,
    *,
    gamma: Strength = 1.0,
    mask: AnyArray | None = None,
) -> Any:
    """The Fenchel-Young loss max_Omega(x) + gamma Omega(q) - <x, q> of a target q; zero only at q = Pi_Omega(x).

    Its gradient is Pi_Omega(x) - q, so one step costs one mapping. With softmax and a class index it is the cross
    entropy; a sparse mapping reaches 0 when the target's score exceeds the others by a margin. Gradients reach the
    scores, a floating-point target, gamma and the regularizer's strength, and can be differentiated again.

    A target with weight on a deleted position (masked, or with a score of -inf) has an infinite loss. Its gradient is
    finite: Pi_Omega(x) - q at the kept positions, 0 at the deleted ones.

    Args:
        omega: a regularizer, the name of a mapping (`"fusedmax,lam=0.2"`), or a module or function of regmax.
        scores: a NumPy array or a torch tensor.
        target: integers are class indices, one per row, of the scores' shape without `dim`; floating-point numbers are
            distributions, of the scores' shape.
        dim: the dimension of the classes.
        gamma: the strength of the regularizer, positive; a module's own gamma is multiplied by it.
        mask: boolean, True = keep.

    Returns:
        One loss per row.

    Example:
        >>> import numpy as np, regmax
        >>> x = np.array([[1.0, 0.5, -1.0], [0.0, 2.0, 1.0]])
        >>> print(regmax.fenchel_young_loss("sparsemax", x, np.array([0, 1])))
        [0.0625 0.    ]
        >>> print(regmax.fenchel_young_loss("sparsemax", x, regmax.sparsemax(x)))
        [0. 0.]
    """
    call = "fenchel_young_loss(omega, scores, target)"
    known, gamma = regularizer_and_gamma(call, omega, gamma)
    front = frontend(call, scores)
    if isinstance(target, int) and not isinstance(target, bool):
        target = namespace(scores).asarray(target)
    return front.fenchel_young(known, scores, target, dim, gamma, mask, call)


def regularizer_and_gamma(call: str, mapping: Any, gamma: Any) -> tuple[Regularizer, Any]:
    """The regularizer of a mapping and its gamma times `gamma`; raise for a function whose Omega is not known."""
    if isinstance(mapping, str | Regularizer) or not (callable(mapping) or hasattr(mapping, "resolved")):
        return regularizer_of(call, mapping), gamma
    found = resolve(mapping)
    if found.omega is None:
        name = getattr(mapping, "__name__", type(mapping).__name__)
        raise TypeError(
            f"`{call}` needs a mapping whose Omega is known: a name, a regularizer, or a module or function of regmax. "
            f"Got {name}: a function has no loss."
        )
    if is_array(found.gamma) or found.gamma != 1:
        gamma = gamma * found.gamma
    return found.omega, gamma
