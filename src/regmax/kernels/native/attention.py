"""The core's attention on contiguous CPU tensors."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from regmax.kernels.native.library import core
from regmax.kernels.native.rows import CHAINED, CODES


class Problem(NamedTuple):
    """The arguments of an attention call that are not differentiated.

    A mask or bias is not expanded over the heads: it has slices (slices, rows, keys), rows being 1 or the number of
    queries, and `mask_slices` and `bias_slices` say which slice each head reads: (heads,), int64.
    """

    kernel: str
    theta: float  # unless there are `Operands.thetas`
    gamma: float  # unless there are `Operands.gammas`
    scale: float
    is_causal: bool
    mask: Tensor | None
    mask_slices: Tensor | None
    bias_slices: Tensor | None
    dropout_p: float
    seed: int
    recompute: bool  # omit the weights of dense blocks, and recompute them in the backward pass
    screen: "Screen | None" = None


class Screen(NamedTuple):
    """A copy of the keys in 8 bits; `integers` and `scales` may have room for more keys per head."""

    integers: Tensor  # (..., room, e), int8
    scales: Tensor  # (..., room)
    bounds: Tensor  # (..., 2): the largest error and the largest norm of a head


class Operands(NamedTuple):
    """The tensors that are differentiated, or their gradients."""

    q: Tensor  # (..., queries, e), e a multiple of 16
    k: Tensor
    v: Tensor
    bias: Tensor | None  # (slices, rows, keys)
    thetas: Tensor | None  # (heads, rows), float64, rows being 1 or the number of queries
    gammas: Tensor | None


class Weights(NamedTuple):
    """The nonzero weights as CSR; `joined` is empty except for fusedmax."""

    starts: Tensor
    columns: Tensor
    values: Tensor
    joined: Tensor


def new_weights(kernel: str, q: Tensor, capacity: int) -> Weights:
    """Memory for the weights of the queries `q`."""
    return Weights(
        torch.empty(q.shape[:-1].numel() + 1, dtype=torch.int64),
        torch.empty(capacity, dtype=torch.int32),
        torch.empty(capacity, dtype=q.dtype),
        torch.empty(capacity if kernel in CHAINED else 0, dtype=torch.uint8),
    )


def forward(
    problem: Problem, operands: Operands, *, keep: bool, dense: bool = False, capacity: int | None = None
) -> tuple[Tensor, Tensor | None, Weights | None]:
    """The output, the dense weights if `dense` is True, and the sparse ones if `keep` is True.

    With a `capacity` the sparse weights have exactly that size; the backward pass recomputes blocks that do not fit.
    """
    q, k, v = operands.q, operands.k, operands.v
    out = q.new_empty(*q.shape[:-1], v.shape[-1])
    y = q.new_empty(*q.shape[:-1], k.shape[-2]) if dense else None
    held = core.attention_forward(*_arguments(problem, operands), out.data_ptr(), _address(y), keep)
    if held is None:
        return out, y, None
    weights = new_weights(problem.kernel, q, core.attention_size(held) if capacity is None else capacity)
    core.attention_take(held, len(weights.columns), *_addresses(weights))
    return out, y, weights


class StridedCall(NamedTuple):
    """The arguments of a forward pass without weights, except addresses; and what the core reads besides."""

    kernel: str
    first: tuple[Any, ...]  # up to those of q, k and v
    second: tuple[Any, ...]  # up to that of the mask
    third: tuple[Any, ...]  # up to the number of threads
    memory: tuple[Tensor | None, ...]


def strided_call(
    problem: Problem, operands: Operands, strides: list[int], mask_slices: Tensor | None, mask_rows: int
) -> StridedCall:
    """The call for tensors (..., heads, rows, e) at these strides: batch, head and row of q, k, v and the output.

    The problem has no mask; its slices and rows come apart.
    """
    kept = torch.tensor(strides, dtype=torch.int64)
    arguments = _arguments(problem, operands)
    q = operands.q
    heads = q.shape[-3] if q.ndim > 2 else 1
    third = (_address(mask_slices), mask_rows, None, None, 0, 0.0, 0, False)
    return StridedCall(problem.kernel, arguments[:16], (kept.data_ptr(), heads), third, (kept, mask_slices))


def forward_strided(
    call: StridedCall, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, out: Tensor
) -> None:
    """Write the output."""
    run: Any = core.attention_forward  # the lengths of the tuples are not part of their types
    run(
        *call.first, q.data_ptr(), k.data_ptr(), v.data_ptr(), *call.second, _address(mask), *call.third,
        torch.get_num_threads(), None, None, None, 0, out.data_ptr(), None, False,
    )  # fmt: skip


def backward(
    problem: Problem,
    operands: Operands,
    weights: Weights,
    out_grad: Tensor,
    dense_grad: Tensor | None,
    wanted: tuple[bool, bool, bool],
) -> Operands:
    """The gradients of q, k, v, and of the bias, thetas and gammas that are `wanted`."""
    q, k, v, bias, _, _ = operands
    q_grad, k_grad, v_grad = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    bias_grad = torch.zeros_like(bias) if wanted[0] and bias is not None else None
    # One number per query, of which strengths per head get the sum.
    theta_grad, gamma_grad = (
        q.new_zeros(q.shape[:-2].numel(), q.shape[-2], dtype=torch.float64) if each else None
        for each in wanted[1:]
    )
    core.attention_backward(
        *_arguments(problem, operands),
        *_addresses(weights),
        out_grad.data_ptr(),
        *(_address(each) for each in (dense_grad, q_grad, k_grad, v_grad, bias_grad, theta_grad, gamma_grad)),
    )
    strengths = (
        None if grad is None or given is None else grad.sum_to_size(given.shape)
        for grad, given in ((theta_grad, operands.thetas), (gamma_grad, operands.gammas))
    )
    return Operands(q_grad, k_grad, v_grad, bias_grad, *strengths)


# fmt: off
_Arguments = tuple[
    int, int, float, float, float, bool,  # dtype to is_causal
    int | None, int, int | None, int,  # thetas and gammas
    int, int, int, int, int, int,  # heads to e_v
    int, int, int, int | None, int,  # q, k, v and their strides
    int | None, int | None, int,  # the mask
    int | None, int | None, int,  # the bias
    float, int, bool, int,  # dropout_p to threads
    int | None, int | None, int | None, int,  # the keys in 8 bits
]
# fmt: on


def _arguments(problem: Problem, operands: Operands) -> _Arguments:
    """The arguments that both passes begin with, in the order of `_core.pyi`."""
    q, k, v, bias, thetas, gammas = operands
    queries, e, keys = q.shape[-2], q.shape[-1], k.shape[-2]
    heads, kv_heads = q.numel() // (queries * e or 1), k.numel() // (keys * e or 1)
    return (
        q.itemsize,
        CODES[problem.kernel],
        problem.theta,
        problem.gamma,
        problem.scale,
        problem.is_causal,
        _address(thetas),
        1 if thetas is None else thetas.shape[1],
        _address(gammas),
        1 if gammas is None else gammas.shape[1],
        heads,
        heads // max(kv_heads, 1) or 1,
        queries,
        keys,
        e,
        v.shape[-1],
        q.data_ptr(),
        k.data_ptr(),
        v.data_ptr(),
        None,
        0,
        _address(problem.mask),
        _address(problem.mask_slices),
        0 if problem.mask is None else problem.mask.shape[1],
        _address(bias),
        _address(problem.bias_slices),
        0 if bias is None else bias.shape[1],
        problem.dropout_p,
        problem.seed,
        problem.recompute,
        torch.get_num_threads(),
        *((None, None, None, 0) if problem.screen is None else _screen(problem.screen)),
    )


def _screen(screen: Screen) -> tuple[int, int, int, int]:
    return (
        screen.integers.data_ptr(),
        screen.scales.data_ptr(),
        screen.bounds.data_ptr(),
        screen.scales.shape[-1],
    )


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _addresses(weights: Weights) -> tuple[int, int, int, int | None]:
    starts, columns, values, joined = (part.data_ptr() for part in weights)
    return starts, columns, values, joined or None  # an empty tensor's address is 0
