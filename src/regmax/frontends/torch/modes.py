"""The modes of PyTorch: plain eager mode, in which the core may read a tensor's memory, and nested forward mode."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch._C import _get_tracing_state, _len_torch_dispatch_stack
from torch._C._functorch import get_dynamic_layer_stack_depth, peek_interpreter_stack
from torch.autograd import forward_ad
from torch.compiler import is_compiling

# torch 2.6 does not tell the two apart; what its compiler traces counts as exported, and has no fused operators.
_TELLS_EXPORT = hasattr(torch.compiler, "_is_exporting_flag")

# Inside, an operator calls its kernel for the device instead of the one with derivatives.
below_autograd: Any = torch._C._AutoDispatchBelowAutograd

TYPES = (Tensor, torch.nn.Parameter)


def is_plain(x: Tensor) -> bool:
    """True for a dense tensor in eager mode: no compiler, tracer, transform, forward-mode level or dispatch mode."""
    return (
        type(x) in TYPES
        and x.layout is torch.strided
        and not x.is_nested
        and not is_compiling()
        and peek_interpreter_stack() is None
        and _len_torch_dispatch_stack() == 0
        and forward_ad._current_level < 0
        and _get_tracing_state() is None
    )


def is_exporting() -> bool:
    """True while `torch.export` traces a program. torch 2.9 compiles `torch.compiler.is_exporting()` to True."""
    return bool(torch.compiler._is_exporting_flag) if _TELLS_EXPORT else is_compiling()


def in_transform() -> bool:
    """True inside a transform of `torch.func`, also while the compiler traces it."""
    return bool(get_dynamic_layer_stack_depth() > 0)


# `torch.compiler.assume_constant_result` without its imports. The compiler of torch 2.9 cannot trace that call, but
# pushes a transform's layer while it traces the transform, and compiles again under others.
in_transform._dynamo_marked_constant = True  # type: ignore[attr-defined]


def nested_forward_mode(jvp: Callable[..., Any]) -> Callable[..., Any]:
    """Make a Function's `jvp(ctx, saved, *tangents)` correct inside an outer forward mode.

    torch disables forward mode while a Function's jvp runs, so its result is constant for an outer level: second
    derivatives by jvp of jvp would be silently wrong. This decorator enables it again, and strips the saved tensors of
    the tangents of their own level, which the result must not have.
    """

    @wraps(jvp)
    def at_this_level(ctx: Any, *tangents: Any) -> Any:
        with forward_ad._set_fwd_grad_enabled(True):
            saved = [
                None if part is None else forward_ad.unpack_dual(part).primal for part in ctx.saved_tensors
            ]
            return jvp(ctx, saved, *tangents)

    return at_this_level
