"""The arguments that attention's operators share: their signature, and the problem and operands as such arguments."""

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any, TypeVar

from torch import Tensor

from regmax.kernels.native.attention import Operands, Problem

_Optional = Tensor | None
# Six results: the gradients of q, k, v, the bias, thetas and gammas; or the output and five parts of the weights.
Six = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
_Function = TypeVar("_Function", bound=Callable[..., Any])

_TENSORS: dict[str, Any] = {
    **dict.fromkeys(("q", "k", "v"), Tensor),
    **dict.fromkeys(("bias", "thetas", "gammas", "mask", "mask_slices", "bias_slices", "seed"), _Optional),
}
_NUMBERS: dict[str, Any] = {
    "kernel": str,
    "theta": float,
    "gamma": float,
    "scale": float,
    "is_causal": bool,
    "dropout_p": float,
}
TENSORS = len(_TENSORS)


def declared(
    before: dict[str, Any] | None = None, after: dict[str, Any] | None = None
) -> Callable[[_Function], _Function]:
    """Declare a function of `*arguments` as one of the shared ones, and those before and after them.

    An operator's schema is inferred from the signature.
    """
    kinds = {**(before or {}), **_TENSORS, **_NUMBERS, **(after or {})}
    parameters = [
        Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=kind) for name, kind in kinds.items()
    ]

    def declare(function: _Function) -> _Function:
        function.__signature__ = Signature(parameters, return_annotation=Six)  # type: ignore[attr-defined]
        return function

    return declare


def flattened(operands: Operands, problem: Problem, seed: Tensor | None) -> tuple[Any, ...]:
    """The shared arguments in order."""
    tensors = (*operands, problem.mask, problem.mask_slices, problem.bias_slices, seed)
    strengths = problem.kernel, problem.theta, problem.gamma, problem.scale
    return (*tensors, *strengths, problem.is_causal, problem.dropout_p)


def restored(arguments: tuple[Any, ...]) -> tuple[Operands, Problem, Tensor | None]:
    """The operands, the problem with a seed of 0, and the seed."""
    mask, mask_slices, bias_slices, seed = arguments[6:TENSORS]
    kernel, theta, gamma, scale, is_causal, dropout_p = arguments[TENSORS:]
    numbers = kernel, theta, gamma, scale, is_causal
    problem = Problem(*numbers, mask, mask_slices, bias_slices, dropout_p, seed=0, recompute=False)
    return Operands(*arguments[:6]), problem, seed
