"""Differentiation of the mappings: y = Pi(x; theta), dy = J (dx - dtheta g), with g = d/dtheta grad Omega(y).

J is symmetric, so the same product serves reverse and forward mode. For sparsemax, fusedmax and oscarmax J is constant
around almost every x, and `JacobianProduct`, linear in its direction, is its own derivative; for sqpnormmax J varies
with y and p, and if it must be differentiated the product is computed by tensor operations.

Four entry points, from cheapest to most general: a direct call (nothing to differentiate), `PlainArgmax` (plain eager
mode, strengths that are numbers), `LearnedArgmax` (plain eager mode, strengths that are tensors), and `Argmax`, which
works under every transform and tracer. compiled.py has the operator for `torch.compile`.
"""

from typing import Any

import torch
from torch import Tensor, is_grad_enabled
from torch._C._functorch import is_legacy_batchedtensor
from torch.autograd import Function
from torch.autograd import function as torch_function

from regmax.frontends.torch import accelerators, ops, structure
from regmax.frontends.torch.in_graph import allow_in_graph
from regmax.frontends.torch.modes import is_plain, nested_forward_mode
from regmax.kernels import KERNELS, native, tensors

Theta = Tensor | float | None
# The kernel whose Jacobian is that of a leading one, for the same directions.
_WHOLE = {leading: kernel for kernel, leading in native.LEADING.items()}

# A Function without functorch: its `apply` skips the check for transforms, which `is_plain` has made.
PlainFunction: Any = getattr(torch_function, "_SingleLevelFunction", Function)


def has_core(x: Tensor) -> bool:
    """Whether the native core computes on this tensor's device."""
    return x.is_cpu and native.available()


def has_kernel(x: Tensor, kernel: str) -> bool:
    """Whether the native core computes this kernel on this tensor's device."""
    return has_core(x) and kernel in native.CODES


def _split(theta: Theta) -> tuple[Tensor | None, float]:
    """A strength as the two arguments of the core: one per row, or one number."""
    return (theta, 0.0) if isinstance(theta, Tensor) else (None, float(theta or 0.0))


def map_rows(x: Tensor, keep: Tensor | None, theta: Theta, kernel: str) -> tuple[Tensor, Tensor]:
    """Weights and bits of rows, on any device; `bits` is empty if tensor operations computed the weights."""
    if not has_kernel(x, kernel):
        no_bits = x.new_empty([0, *x.shape[:-1], 1], dtype=torch.int64)
        if accelerators.has_kernel(x, kernel):
            return accelerators.argmax(x, keep, theta, kernel), no_bits
        return tensors.argmax(kernel, x, keep, theta), no_bits
    if is_plain(x):
        bits = x.new_empty(structure.bits_shape(x, kernel), dtype=torch.int64)
        return ops.call_argmax(x.contiguous(), keep, *_split(theta), 1.0, kernel, bits), bits
    return ops.argmax(x, keep, *_split(theta), kernel)


def product(
    v: Tensor, y: Tensor, bits: Tensor | None, keep: Tensor | None, theta: Theta, kernel: str
) -> Tensor:
    """J v, differentiable any number of times."""
    core = has_kernel(y, kernel)
    batched = is_legacy_batchedtensor(v)  # by `autograd.grad(..., is_grads_batched=True)`
    if core and not batched and not is_grad_enabled() and is_plain(v):
        return ops.call_jacobian_product(v, y, bits, keep, *_split(theta), 1.0, kernel)
    kernel = _WHOLE.get(kernel, kernel)
    if _on_accelerator(v, y, kernel):
        return accelerators.product(v, y, keep, theta, kernel)
    if not core or batched or not KERNELS[kernel].constant_jacobian:
        return tensors.jacobian_product(kernel, y, v, keep, theta)
    constant = theta.detach() if isinstance(theta, Tensor) else theta
    return JacobianProduct.apply(v, y.detach(), bits, keep, constant, kernel)


def _on_accelerator(v: Tensor, y: Tensor, kernel: str) -> bool:
    """Whether Triton computes this product, which then cannot be differentiated again."""
    return accelerators.has_kernel(y, kernel) and not is_legacy_batchedtensor(v) and not is_grad_enabled()


class PlainArgmax(PlainFunction):  # type: ignore[misc]
    """Pi(x / gamma) in plain eager mode, with numbers for theta and gamma: the least overhead that autograd permits."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, call: tuple[Tensor | None, float, float, str]) -> Tensor:
        keep, theta, gamma, kernel = call  # one tuple: torch inspects every argument
        bits = structure.new_bits(x, kernel, theta)
        again = structure.reads_again(x, kernel)
        y = ops.call_argmax(x, keep, None, theta, gamma, kernel, bits, read_again=again)
        # Each saved tensor, even None, makes a small call a few percent slower.
        if bits is None and keep is None:
            ctx.save_for_backward(y)
        else:
            ctx.save_for_backward(y, bits, keep)
        ctx.strengths = theta, gamma, kernel
        return y

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Any:
        saved = ctx.saved_tensors
        y, bits, keep = saved if len(saved) == 3 else (saved[0], None, None)
        theta, gamma, kernel = ctx.strengths
        if is_grad_enabled() or is_legacy_batchedtensor(v) or not is_plain(v):
            x_grad = product(v, y, bits, keep, theta, kernel)
            return x_grad if gamma == 1.0 else x_grad / gamma, None
        return ops.call_jacobian_product(v, y, bits, keep, None, theta, gamma, kernel), None


class LearnedArgmax(PlainFunction):  # type: ignore[misc]
    """Pi(x / gamma; theta) in plain eager mode; the kernel gives the gradients of theta and gamma, a number per row.

    On the support x / gamma = grad Omega(y) + tau, and the gradient of the scores, g, sums to zero there: so gamma's
    gradient -<g, x> / gamma is -<g, grad Omega(y)>, which loses no digits if the scores are far from zero.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, theta: Theta, gamma: Tensor | float, call: tuple[Tensor | None, str]
    ) -> Tensor:
        keep, kernel = call
        learned = any(ctx.needs_input_grad[1:3])
        bits, extra = structure.new_learned_bits(x, kernel), structure.new_extra(x, kernel, learned=learned)
        strength = 0.0 if theta is None else theta
        again = structure.reads_again(x, kernel, learned=learned)
        y = ops.call_argmax_learned(x, keep, strength, gamma, kernel, bits, extra, read_again=again)
        strengths = [part if isinstance(part, Tensor) else None for part in (theta, gamma)]
        ctx.save_for_backward(y, extra, bits, keep, *strengths)
        ctx.numbers, ctx.kernel = (theta, gamma), kernel
        return y

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Any:
        y, extra, bits, keep, *strengths = ctx.saved_tensors
        theta, gamma = (
            number if tensor is None else tensor
            for number, tensor in zip(ctx.numbers, strengths, strict=True)
        )
        if is_grad_enabled() or is_legacy_batchedtensor(v) or not is_plain(v):
            in_half = y.dtype in structure.HALF
            weights, direction = (full_weights(y, extra), v.float()) if in_half else (y, v)
            x_grad, *rows = _differentiable_grads(direction, weights, bits, keep, theta, gamma, ctx.kernel)
            x_grad = x_grad.to(v.dtype)
        else:
            x_grad, *rows = ops.call_strength_grads(
                v,
                y,
                bits,
                keep,
                0.0 if theta is None else theta,
                gamma,
                ctx.kernel,
                extra,
                ctx.needs_input_grad[1:3],
            )
        grads = [
            row.sum_to_size(strength.shape).to(strength.dtype) if needed else None
            for row, strength, needed in zip(rows, (theta, gamma), ctx.needs_input_grad[1:3], strict=True)
        ]
        return x_grad, *grads, None


def full_weights(y: Tensor, y32: Tensor | None) -> Tensor:
    """The float32 weights, if they are known, with the graph of the half-precision ones."""
    return y.float() if y32 is None else y.float() + (y32 - y.detach().float())


def _differentiable_grads(
    v: Tensor,
    y: Tensor,
    bits: Tensor | None,
    keep: Tensor | None,
    theta: Theta,
    gamma: Tensor | float,
    kernel: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of the scores and of each row's theta and gamma, differentiable any number of times."""
    kernel = _WHOLE.get(kernel, kernel)
    kept = structure.kept_mask(bits, y.shape[-1]) if bits is not None and bits.shape[0] == 3 else keep
    x_grad = product(v, y, bits, keep, theta, kernel) / gamma
    by_theta = tensors.theta_gradient(kernel, y, kept, theta)
    by_gamma = tensors.omega_gradient(kernel, y, kept, theta)
    theta_grad = -gamma * (x_grad * by_theta).sum(-1, keepdim=True)
    return x_grad, theta_grad, -(x_grad * by_gamma).sum(-1, keepdim=True)


class Argmax(Function):
    """Pi(x; theta), with the bits of the rows as a second, non-differentiable output."""

    @staticmethod
    def forward(x: Tensor, keep: Tensor | None, theta: Theta, kernel: str) -> tuple[Tensor, Tensor]:
        return map_rows(x, keep, theta, kernel)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        _, keep, theta, kernel = inputs
        y, bits = output
        ctx.mark_non_differentiable(bits)
        ctx.kernel, ctx.number = kernel, None if isinstance(theta, Tensor) else theta
        saved = (y, bits, keep, theta if isinstance(theta, Tensor) else None)
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)

    @staticmethod
    def backward(ctx: Any, v: Tensor, *_: Any) -> Any:
        y, bits, keep, theta = ctx.saved_tensors
        strength = ctx.number if theta is None else theta
        learned = theta is not None and ctx.needs_input_grad[2]
        if learned and _on_accelerator(v, y, ctx.kernel):
            x_grad, rows = accelerators.strength_grads(v, y, keep, theta, ctx.kernel)
            return x_grad, None, rows.sum_to_size(theta.shape), None
        x_grad = product(v, y, bits, keep, strength, ctx.kernel)
        theta_grad = None
        if learned:
            rows = -(x_grad * tensors.theta_gradient(ctx.kernel, y, keep, theta)).sum(-1, keepdim=True)
            theta_grad = rows.sum_to_size(theta.shape)
        return x_grad, None, theta_grad, None

    @staticmethod
    @nested_forward_mode
    def jvp(
        ctx: Any, saved: Any, x_t: Tensor | None, _keep: Any, theta_t: Tensor | None, _kernel: Any
    ) -> Any:
        y, bits, keep, theta = saved
        strength = ctx.number if theta is None else theta
        direction = torch.zeros_like(y) if x_t is None else x_t
        if theta_t is not None:
            direction = direction - theta_t * tensors.theta_gradient(ctx.kernel, y, keep, theta)
        return product(direction, y, bits, keep, strength, ctx.kernel), None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, keep: Tensor | None, theta: Theta, kernel: str) -> Any:
        x = batch_first(x, in_dims[0], info.batch_size)
        keep, theta = broadcast_batch(keep, in_dims[1], x), broadcast_batch(theta, in_dims[2], x)
        return Argmax.apply(x, keep, theta, kernel), (0, 1)


class JacobianProduct(Function):
    """J v for the kernels whose Jacobian is locally constant: linear in v, and symmetric."""

    @staticmethod
    def forward(
        v: Tensor, y: Tensor, bits: Tensor | None, keep: Tensor | None, theta: Theta, kernel: str
    ) -> Tensor:
        return ops.jacobian_product(v, y, bits, keep, *_split(theta), kernel)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, y, bits, keep, theta, kernel = inputs
        ctx.kernel, ctx.number = kernel, None if isinstance(theta, Tensor) else theta
        saved = (y, bits, keep, theta if isinstance(theta, Tensor) else None)
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)

    @staticmethod
    def backward(ctx: Any, w: Tensor) -> Any:
        return _again(ctx, ctx.saved_tensors, w), None, None, None, None, None

    @staticmethod
    @nested_forward_mode
    def jvp(ctx: Any, saved: Any, v_t: Tensor, *_: Any) -> Tensor:
        return _again(ctx, saved, v_t)

    @staticmethod
    def vmap(
        info: Any,
        in_dims: Any,
        v: Tensor,
        y: Tensor,
        bits: Tensor | None,
        keep: Tensor | None,
        theta: Theta,
        kernel: str,
    ) -> Any:
        size = info.batch_size
        v, y = batch_first(v, in_dims[0], size), batch_first(y, in_dims[1], size)
        # The batch dimension follows the parts: (parts, batch, ..., words).
        bits = None if bits is None else batch_first(bits, in_dims[2], size).movedim(0, 1)
        keep, theta = broadcast_batch(keep, in_dims[3], v), broadcast_batch(theta, in_dims[4], v)
        return JacobianProduct.apply(v, y, bits, keep, theta, kernel), 0


def _again(ctx: Any, saved: Any, v: Tensor) -> Tensor:
    """The derivative of the product: the same product with another direction."""
    y, bits, keep, theta = saved
    return JacobianProduct.apply(v, y, bits, keep, ctx.number if theta is None else theta, ctx.kernel)


def batch_first(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    """The tensor with its vmapped dimension first; a tensor that is not vmapped is expanded."""
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def broadcast_batch(part: Any, dim: int | None, x: Tensor) -> Any:
    """A mask or strength that broadcasts against `x`, whose vmapped dimension is first."""
    if dim is None:
        return part
    part = part.movedim(dim, 0)
    return part.reshape(part.shape[0], *(1,) * (x.ndim - part.ndim), *part.shape[1:])


@allow_in_graph
def argmax(x: Tensor, keep: Tensor | None, theta: Theta, kernel: str) -> Tensor:
    """Pi(x; theta) on rows, for every transform, tracer and compiler."""
    return Argmax.apply(x, keep, theta, kernel)[0]
