"""Attention on the CPU without a dense weight matrix, and its derivative restricted to the support."""

from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from regmax.arrays import NUMBER
from regmax.frontends.checks import parameter_shape
from regmax.frontends.torch.modes import TYPES, in_transform, is_exporting, is_plain
from regmax.kernels import native
from regmax.kernels.native import attention as core
from regmax.regularizers import KernelRegularizer
from regmax.regularizers.base import Bounds
from regmax.resolver import Resolved
from regmax.sparse_attention import operator
from regmax.sparse_attention.dense import dense_attention, repeat_heads
from regmax.sparse_attention.function import Gradients, Wanted, attend, padded, trimmed
from regmax.sparse_attention.inputs import Inputs, groups_of, scores_shape
from regmax.sparse_attention.weights import SparseWeights


def suits(inputs: Inputs, found: Resolved) -> bool:
    """Whether the native core supports this call: its kernels on CPU tensors, in eager mode or under the compiler."""
    omega, q, k, v = found.omega, inputs.q, inputs.k, inputs.v
    return (
        q.is_cpu
        and inputs.softcap is None
        and isinstance(omega, KernelRegularizer)
        and omega.kernel in native.CODES
        and native.available()
        and _is_readable(q)
        and _is_readable(k)
        and _is_readable(v)
        and min(q.numel(), k.numel(), v.numel()) > 0
        and _is_strength(found.gamma)
        and (omega.theta is None or _is_strength(omega.theta))
    )


def _is_readable(x: Tensor) -> bool:
    """Whether the core may read a tensor, now or in the compiled program. An exported program has no operators."""
    if is_compiling():
        return not is_exporting() and not in_transform()
    return is_plain(x)


def _is_strength(value: Any) -> bool:
    return isinstance(value, NUMBER) or (type(value) in TYPES and value.is_cpu and _is_readable(value))


def sparse_attention(inputs: Inputs, found: Resolved, *, return_weights: Any) -> Any:
    """The output, or that and the weights before dropout: `return_weights` is that of `attention`."""
    dtype = work = inputs.q.dtype
    if dtype != torch.float64:
        work = torch.float32
        if torch.is_autocast_enabled("cpu"):  # as torch's attention: halves out, whatever the inputs
            dtype = torch.get_autocast_dtype("cpu")
    if work != inputs.q.dtype:
        inputs = inputs._replace(q=inputs.q.to(work), k=inputs.k.to(work), v=inputs.v.to(work))
    if inputs.mask is not None:
        inputs = _unshare_heads(inputs, inputs.mask)
    wanted: Wanted = "output" if not return_weights else "dense" if return_weights is True else "sparse"
    problem, operands = describe(inputs, found, recompute=wanted != "sparse")
    if is_compiling():
        return _compiled(inputs, problem, operands, wanted, dtype)
    if inputs.dropout_p > 0:
        problem = problem._replace(seed=int(_seed()))
    out, *weights = attend(operands, problem, wanted, partial(_dense_gradients, inputs, found))
    out = out if out.dtype == dtype else out.to(dtype)
    if wanted == "output":
        return out
    if wanted == "dense":
        return out, weights[0].to(dtype)
    starts, columns, values, _ = weights
    return out, SparseWeights(starts, columns, values.to(dtype), scores_shape(inputs))


def _compiled(
    inputs: Inputs, problem: core.Problem, operands: core.Operands, wanted: Wanted, dtype: torch.dtype
) -> Any:
    """The same under the compiler, which has no sparse tensors of unknown size: these are made from dense weights."""
    seed = _seed() if inputs.dropout_p > 0 else None
    kind: Wanted = "output" if wanted == "output" else "dense"
    out, *weights = operator.attend(padded(operands), problem, kind, seed)
    out = trimmed(out, inputs.v).to(dtype)
    if wanted == "output":
        return out
    y = weights[0].to(dtype)
    return out, y if wanted == "dense" else SparseWeights.from_dense(y)


def _seed() -> Tensor:
    """A seed for dropout, drawn by torch's generator."""
    return torch.randint(2**63 - 1, ())


def _dense_gradients(
    inputs: Inputs, found: Resolved, operands: core.Operands, out_grad: Tensor, y_grad: Tensor | None
) -> Gradients:
    """Gradients that can be differentiated again, recomputed by dense attention."""
    if inputs.dropout_p > 0:
        raise NotImplementedError(
            "`attention(..., dropout_p=...)` is differentiable only once. Got `create_graph=True`: set dropout_p to 0."
        )
    q, k, v, bias, thetas, gammas = operands
    omega, gamma, batch = found.omega, found.gamma, scores_shape(inputs)[:-2]
    assert isinstance(omega, KernelRegularizer)
    if thetas is not None:
        omega = omega.with_theta(thetas.reshape(*batch, -1, 1))
    if gammas is not None:
        gamma = gammas.reshape(*batch, -1, 1)
    if bias is not None:
        assert inputs.bias is not None
        slices = slices_of_heads(inputs.bias.shape[:-2], inputs.q.shape[:-2])
        bias = bias[slices].reshape(*batch, -1, bias.shape[-1])
    again = inputs._replace(q=q, k=k, v=v, bias=bias)
    out, y = dense_attention(again, Resolved(omega, gamma))
    wanted = [x for x in operands if x is not None and x.requires_grad]
    results, directions = ([out], [out_grad]) if y_grad is None else ([out, y], [out_grad, y_grad])
    grads = iter(torch.autograd.grad(results, wanted, directions, create_graph=True, allow_unused=True))
    return tuple(next(grads) if x is not None and x.requires_grad else None for x in operands)


def describe(inputs: Inputs, found: Resolved, *, recompute: bool) -> tuple[core.Problem, core.Operands]:
    """The arguments of the core; strengths are checked."""
    omega = found.omega
    assert isinstance(omega, KernelRegularizer)
    theta, thetas = 0.0, None
    if omega.bounds is not None:
        theta, thetas = _strength(omega.theta, omega.bounds, inputs)
    gamma, gammas = _strength(found.gamma, _gamma_bounds(omega.call), inputs)
    mask, bias = inputs.mask, inputs.bias
    mask_slices = bias_slices = None
    if mask is not None:
        mask, mask_slices = _rows(mask, inputs)
    if bias is not None:
        bias, bias_slices = _rows(bias.to(inputs.q.dtype), inputs)
    problem = core.Problem(
        kernel=omega.kernel,
        theta=theta,
        gamma=gamma,
        scale=inputs.scale,
        is_causal=inputs.is_causal,
        mask=mask,
        mask_slices=mask_slices,
        bias_slices=bias_slices,
        dropout_p=float(inputs.dropout_p),
        seed=0,
        recompute=recompute,
        screen=_usable_screen(inputs),
    )
    return problem, core.Operands(inputs.q, inputs.k, inputs.v, bias, thetas, gammas)


def _usable_screen(inputs: Inputs) -> core.Screen | None:
    """The keys in 8 bits, unless the keys were converted, repeated or broadcast since they were copied."""
    screen, k = inputs.screen, inputs.k
    if screen is None or k.dtype != torch.float32 or is_compiling():
        return None
    batch = screen.bounds.shape[:-1]
    return screen if batch == k.shape[:-2] and screen.integers.shape[-1] == k.shape[-1] else None


def _gamma_bounds(call: str) -> Bounds:
    bounds = _GAMMA_BOUNDS.get(call)
    return Bounds(f"{call}: gamma", above=0.0) if bounds is None else bounds


_GAMMA_BOUNDS = {f"{name}(...)": Bounds(f"{name}(...): gamma", above=0.0) for name in native.CODES}


def _strength(value: Any, bounds: Bounds, inputs: Inputs) -> tuple[float, Tensor | None]:
    """A strength as one number, or as numbers (heads, rows), rows being 1 or the number of queries."""
    bounds.check(value)
    if not isinstance(value, Tensor):
        if not is_compiling():
            return float(value), None
        # A number of an operator is a constant to the compiler: annealing would recompile at every step.
        value = torch.ones((), dtype=torch.float64) * value
    shape = parameter_shape(bounds.call, value.shape, scores_shape(inputs), len(scores_shape(inputs)) - 1)
    if is_plain(value):  # entries cannot be traced
        for extreme in torch.aminmax(value.detach()):
            bounds.check(float(extreme))
    rows = value.to(torch.float64).reshape(shape)[..., 0]
    rows = rows.expand(*scores_shape(inputs)[:-2], rows.shape[-1])
    return 1.0, rows.reshape(-1, rows.shape[-1]).contiguous()


def _rows(tensor: Tensor, inputs: Inputs) -> tuple[Tensor, Tensor]:
    """A mask or bias: its slices (slices, rows, keys), and the slice that each head reads.

    It broadcasts to the scores, and is expanded only along the keys. Batch dimensions that it lacks or has once are
    shared by the heads.
    """
    if tensor.ndim < 2:
        tensor = tensor.reshape(1, -1)
    keys, batch = inputs.k.shape[-2], inputs.q.shape[:-2]
    if tensor.shape[-1] != keys:
        tensor = tensor.expand(*tensor.shape[:-1], keys)
    slices = slices_of_heads(tensor.shape[:-2], batch)
    return tensor.reshape(-1, tensor.shape[-2], keys).contiguous(), slices


def slices_of_heads(slices: tuple[int, ...], batch: tuple[int, ...]) -> Tensor:
    """The slice of a mask or bias that each head reads."""
    return _numbers(slices, batch) if is_compiling() else _cached_numbers(slices, batch)


def _numbers(slices: tuple[int, ...], batch: tuple[int, ...]) -> Tensor:
    numbers = torch.arange(torch.Size(slices).numel())
    numbers = numbers.reshape((1,) * (len(batch) - len(slices)) + tuple(slices))
    return numbers.expand(batch).reshape(-1).contiguous()


@lru_cache(maxsize=64)
def _cached_numbers(slices: tuple[int, ...], batch: tuple[int, ...]) -> Tensor:
    with torch.inference_mode(False):  # for later calls in any mode
        return _numbers(slices, batch)


def _unshare_heads(inputs: Inputs, mask: Tensor) -> Inputs:
    """Repeat keys and values that are shared by heads with different padding."""
    if mask.ndim > 1 and mask.stride(-2) == 0 and mask.shape[-2] > 1:  # padding, expanded over the queries
        mask = mask[..., :1, :]
        inputs = inputs._replace(mask=mask)
    if mask.ndim < 3 or mask.shape[-2] != 1 or mask.shape[-3] == 1 or groups_of(inputs) == 1:
        return inputs
    k, v = repeat_heads(inputs)
    return inputs._replace(k=k, v=v)
