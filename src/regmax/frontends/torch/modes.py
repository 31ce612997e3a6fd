"""Whether a tensor can be handed to the core as a pointer, or something is watching what happens to it."""

import torch
from torch import Tensor
from torch._C import _get_tracing_state, _len_torch_dispatch_stack
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad


def is_plain(x: Tensor) -> bool:
    """True in plain eager mode: no compiler, tracer, transform, forward-mode level or dispatch mode is active."""
    return (
        not torch.compiler.is_compiling()
        and (type(x) is Tensor or type(x) is torch.nn.Parameter)
        and peek_interpreter_stack() is None
        and _len_torch_dispatch_stack() == 0
        and forward_ad._current_level < 0
        and _get_tracing_state() is None
    )
