"""The OWL prox, differentiable in the scores and in the weights.

z = sign(x) (group mean of |x| minus group mean of the weights at its ranks), so dz = J (dx - s(dw)), where s gives
every position the sign of its z times the weight of its rank. J averages groups with signs; it is symmetric.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from regmax.frontends.torch import autograd, ops
from regmax.frontends.torch.in_graph import allow_in_graph
from regmax.frontends.torch.modes import nested_forward_mode
from regmax.kernels import tensors


class ProxOwl(Function):
    """The proximal operator of the ordered weighted L1 norm, on rows."""

    @staticmethod
    def forward(x: Tensor, weights: Tensor) -> Tensor:
        if autograd.has_core(x) and weights.ndim == 1:
            return ops.prox_owl(x, weights.double())
        return tensors.prox_owl(x, weights)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(output, inputs[1])
        ctx.save_for_forward(output, inputs[1])

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Any:
        z, weights = (part.detach() for part in ctx.saved_tensors)
        x_grad = tensors.prox_owl_jacobian_product(z, v, weights)
        weights_grad = None
        if ctx.needs_input_grad[1]:
            by_rank = torch.take_along_dim(-z.sign() * x_grad, _by_size(z), -1)
            weights_grad = by_rank.sum_to_size(weights.shape)
        return x_grad, weights_grad

    @staticmethod
    @nested_forward_mode
    def jvp(ctx: Any, saved: Any, x_t: Tensor | None, weights_t: Tensor | None) -> Tensor:
        z, weights = (part.detach() for part in saved)
        direction = torch.zeros_like(z) if x_t is None else x_t
        if weights_t is not None:
            rank = _by_size(z).argsort(-1)
            direction = direction - z.sign() * torch.take_along_dim(weights_t.expand(z.shape), rank, -1)
        return tensors.prox_owl_jacobian_product(z, direction, weights)

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, weights: Tensor) -> Any:
        x = autograd.batch_first(x, in_dims[0], info.batch_size)
        return ProxOwl.apply(x, autograd.broadcast_batch(weights, in_dims[1], x)), 0


def _by_size(z: Tensor) -> Tensor:
    """Positions from the largest |z| to the smallest."""
    return torch.argsort(z.abs(), dim=-1, descending=True, stable=True)


@allow_in_graph
def prox_owl(x: Tensor, weights: Tensor) -> Tensor:
    """The OWL prox on rows, for every transform, tracer and compiler."""
    return ProxOwl.apply(x, weights)
