"""Fenchel-Young losses: for every regularizer the loss whose gradient is the mapping's weights minus the target.

    L(x; q) = max_Omega(x) + gamma Omega(q) - <x, q>  >=  0,    zero if and only if q = Pi_Omega(x)

(Blondel, Martins and Niculae, 2020). softmax has the cross entropy; sparse mappings have losses with a margin.
"""

from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from regmax.arrays import A, AnyArray, Array, Strength, framework, is_array, is_floating, namespace
from regmax.frontends import frontend
from regmax.functional import regularizer_of
from regmax.regularizers import Regularizer
from regmax.resolver import MappingLike, resolve

F = TypeVar("F", bound=np.floating[Any])
REDUCTIONS = ("mean", "sum", "none")


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
        scores: a NumPy array, a torch tensor or a JAX array.
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


def linear_fenchel_young_loss(
    hidden: Array[A],
    weight: Array[A],
    target: AnyArray,
    bias: Array[A] | None = None,
    *,
    mapping: MappingLike = "sparsemax",
    gamma: Strength = 1.0,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> A:
    """The Fenchel-Young loss of a linear layer's scores, hidden weight^T + bias, which are never stored whole.

    The scores are computed in blocks of rows. If few weights are nonzero, the gradients of hidden, weight and bias use
    only these: with a large vocabulary a step takes about a third of the time of cross entropy, and a tenth of its
    memory. Rows with many nonzero weights take dense products. The weight may be shared, e.g. with an embedding. It is
    the same loss as `fenchel_young_loss` of the scores. Second derivatives, and calls under a compiler or a transform,
    store the scores.

    Args:
        hidden: states, a torch tensor (..., features).
        weight: (classes, features), as in `torch.nn.functional.linear`.
        target: class indices, integers of shape (...).
        bias: (classes,).
        mapping: a name, a regularizer, or a module or function of regmax.
        gamma: the strength of the regularizer, positive: a number, or a tensor of one number, which can be learned.
        ignore_index: rows with this class index have no loss and are not counted in the mean.
        reduction: "mean", "sum" or "none".

    Returns:
        The mean or the sum of the losses, or with "none" one loss for every row.

    Example:
        >>> import torch, regmax
        >>> hidden, weight = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.25, 0.125], [-1.0, 0.0]])
        >>> regmax.linear_fenchel_young_loss(hidden, weight, torch.tensor([0]))
        tensor(0.0625)
    """
    call = "linear_fenchel_young_loss(hidden, weight, target)"
    check_linear(call, hidden, weight, target, bias)
    check_reduction("linear_fenchel_young_loss(..., reduction=...)", reduction)
    omega, gamma = regularizer_and_gamma(call, mapping, gamma)
    front = frontend(call, hidden)
    return front.linear_fenchel_young(
        call, omega, gamma, hidden, weight, bias, target, ignore_index, reduction
    )


def check_linear(call: str, hidden: Any, weight: Any, target: Any, bias: Any) -> None:
    """Raise unless these are tensors of matching shapes and types."""
    tensors = {
        "hidden": hidden,
        "weight": weight,
        "target": target,
        **({} if bias is None else {"bias": bias}),
    }
    for name, tensor in tensors.items():
        if framework(tensor) != "torch":
            raise TypeError(f"`{call}`: `{name}` must be a torch tensor. Got {type(tensor).__name__}.")
        if name != "target" and (not is_floating(tensor) or tensor.dtype != hidden.dtype):
            raise TypeError(
                f"`{call}` needs hidden, weight and bias of one floating-point type. Got {hidden.dtype} and "
                f"{tensor.dtype}."
            )
    if hidden.ndim == 0 or weight.ndim != 2 or hidden.shape[-1] != weight.shape[1] or not len(weight):
        raise ValueError(
            f"`{call}` needs hidden (..., features) and weight (classes, features). "
            f"Got {tuple(hidden.shape)} and {tuple(weight.shape)}."
        )
    if bias is not None and tuple(bias.shape) != (len(weight),):
        raise ValueError(f"`{call}`: `bias` must have shape ({len(weight)},). Got {tuple(bias.shape)}.")
    if is_floating(target) or str(target.dtype) == "torch.bool":
        raise TypeError(
            f"`{call}` needs class indices, integers. Got {target.dtype}: for distributions use `fenchel_young_loss`."
        )
    if target.shape != hidden.shape[:-1]:
        raise ValueError(
            f"`{call}` needs one class index for every state, shape {tuple(hidden.shape[:-1])}. "
            f"Got {tuple(target.shape)}."
        )


def check_reduction(call: str, reduction: str) -> None:
    """Raise unless the reduction is known."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"`{call}` must be 'mean', 'sum' or 'none'. Got {reduction!r}.")


def regularizer_and_gamma(call: str, mapping: Any, gamma: Any) -> tuple[Regularizer, Any]:
    """The regularizer of a mapping and its gamma times `gamma`; raise for a function whose Omega is not known."""
    if isinstance(mapping, (str, Regularizer)) or not (callable(mapping) or hasattr(mapping, "resolved")):
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
