"""The core's attention on contiguous CPU tensors."""

from typing import NamedTuple

import torch
from torch import Tensor

from regmax.kernels.native.library import core
from regmax.kernels.native.rows import CHAINED, CODES

# A mask or a bias that is not expanded over the heads: the slices (slices, rows, keys), rows being 1 or the number of
# queries, and the slice that each head reads (heads,), int64.
Slices = tuple[Tensor, Tensor]


class Problem(NamedTuple):
    """The arguments of an attention call besides q, k and v."""

    kernel: str
    theta: float
    scale: float
    is_causal: bool
    mask: Slices | None
    bias: Slices | None
    dropout_p: float
    seed: int
    recompute: bool  # omit the weights of dense blocks, and recompute them in the backward pass


class Weights(NamedTuple):
    """The nonzero weights as CSR; `joined` is empty except for fusedmax."""

    starts: Tensor
    columns: Tensor
    values: Tensor
    joined: Tensor


def forward(
    problem: Problem, q: Tensor, k: Tensor, v: Tensor, *, keep: bool
) -> tuple[Tensor, Weights | None]:
    """The output, and the weights if `keep` is True."""
    out = q.new_empty(*q.shape[:-1], v.shape[-1])
    held = core.attention_forward(*_arguments(problem, q, k, v), out.data_ptr(), keep)
    if held is None:
        return out, None
    size = core.attention_size(held)
    weights = Weights(
        torch.empty(q.shape[:-1].numel() + 1, dtype=torch.int64),
        torch.empty(size, dtype=torch.int32),
        torch.empty(size, dtype=q.dtype),
        torch.empty(size if problem.kernel in CHAINED else 0, dtype=torch.uint8),
    )
    core.attention_take(held, *_addresses(weights))
    return out, weights


def backward(
    problem: Problem, q: Tensor, k: Tensor, v: Tensor, weights: Weights, out_grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v."""
    q_grad, k_grad, v_grad = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    core.attention_backward(
        *_arguments(problem, q, k, v),
        *_addresses(weights),
        out_grad.data_ptr(),
        q_grad.data_ptr(),
        k_grad.data_ptr(),
        v_grad.data_ptr(),
    )
    return q_grad, k_grad, v_grad


# fmt: off
_Arguments = tuple[
    int, int, float, float, bool,  # dtype to is_causal
    int, int, int, int, int, int,  # heads to e_v
    int, int, int,  # q, k, v
    int | None, int | None, int,  # the mask
    int | None, int | None, int,  # the bias
    float, int, bool, int,  # dropout_p to threads
]
# fmt: on


def _arguments(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> _Arguments:
    """The arguments that both passes begin with, in the order of `_core.pyi`."""
    heads, kv_heads = q.shape[:-2].numel(), k.shape[:-2].numel()
    return (
        q.itemsize,
        CODES[problem.kernel],
        problem.theta,
        problem.scale,
        problem.is_causal,
        heads,
        heads // max(kv_heads, 1) or 1,
        q.shape[-2],
        k.shape[-2],
        k.shape[-1],
        v.shape[-1],
        q.data_ptr(),
        k.data_ptr(),
        v.data_ptr(),
        *_slices(problem.mask),
        *_slices(problem.bias),
        problem.dropout_p,
        problem.seed,
        problem.recompute,
        torch.get_num_threads(),
    )


def _slices(slices: Slices | None) -> tuple[int | None, int | None, int]:
    if slices is None:
        return None, None, 0
    tensor, of_head = slices
    return tensor.data_ptr(), of_head.data_ptr(), tensor.shape[1]


def _addresses(weights: Weights) -> tuple[int, int, int, int | None]:
    starts, columns, values, joined = (part.data_ptr() for part in weights)
    return starts, columns, values, joined or None  # an empty tensor's address is 0
