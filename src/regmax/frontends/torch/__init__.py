"""The front end for PyTorch tensors."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regmax import duality
from regmax.frontends.checks import (
    broadcasts,
    check_classes,
    check_distribution,
    check_owl_order,
    check_owl_weights,
    check_target,
)
from regmax.frontends.torch import (
    autograd,
    capped,
    compiled,
    exported,
    half,
    linear_loss,
    linear_rows,
    losses,
    ops,
    owl,
    smooth,
    threads,
)
from regmax.frontends.torch.maximum import maximum as maximum_rows
from regmax.frontends.torch.modes import is_exporting, is_plain
from regmax.frontends.torch.rows import Rows, prepare
from regmax.kernels import native
from regmax.regularizers import KernelRegularizer, Regularizer
from regmax.regularizers.base import Bounds

_INFINITY = float("inf")

project_capped_simplex = capped.project_capped_simplex

threads.share()


def mapping(omega: type[KernelRegularizer], theta: Any, x: Tensor, dim: int, gamma: Any, mask: Any) -> Tensor:
    """Pi_Omega(x), given the regularizer's class and strength; contiguous rows go directly to the core."""
    if (
        type(gamma) is float
        and 0.0 < gamma < _INFINITY
        and omega.kernel in native.CODES
        and native.available()
        and omega.accepts(theta)
        and is_plain(x)
        and x.is_cpu
        and x.dtype in _PLAIN
        and type(dim) is int
        and (dim == -1 or dim == x.ndim - 1)
        and x.is_contiguous()
        and x.ndim > 0
        and (mask is None or _is_plain_mask(mask, x))
    ):
        return _PLAIN[x.dtype](x, mask, theta or 0.0, gamma, omega.kernel)
    return argmax(omega.made(theta), x, dim, gamma, mask)


def _is_plain_mask(mask: Any, x: Tensor) -> bool:
    return (
        type(mask) is Tensor
        and mask.dtype is torch.bool
        and mask.is_cpu
        and (mask.shape == x.shape or broadcasts(mask.shape, x.shape))
    )


def argmax(omega: Regularizer, x: Tensor, dim: int, gamma: Any, mask: Any) -> Tensor:
    """Pi_Omega(x) along `dim`."""
    if not isinstance(omega, KernelRegularizer):
        rows = prepare("regularized_argmax(...)", x, dim, gamma, mask)
        return rows.restore(smooth.argmax_rows(omega, rows))
    halves = _reads_halves(omega, x)
    rows = prepare(omega.call, x, dim, gamma, mask, omega.theta, omega.bounds, halves=halves)
    return rows.restore(_argmax_rows(omega, rows))


def _reads_halves(omega: KernelRegularizer, x: Tensor) -> bool:
    """Whether the core reads half-precision scores as they are, and writes such weights."""
    return not omega.steps and autograd.has_kernel(x, omega.kernel) and (is_plain(x) or compiled.suits())


def _plain(x: Tensor, keep: Tensor | None, theta: float, gamma: float, kernel: str) -> Tensor:
    """Pi_Omega of contiguous rows on the CPU, in plain eager mode."""
    if x.requires_grad and torch.is_grad_enabled():
        return autograd.PlainArgmax.apply(x, (keep, theta, gamma, kernel))
    return ops.call_argmax(x, keep, None, theta, gamma, kernel, None)


# The types that the core reads, and the function for each.
_PLAIN = {
    torch.float32: _plain,
    torch.float64: _plain,
    torch.float16: half.argmax,
    torch.bfloat16: half.argmax,
}


def _learned(x: Tensor, keep: Tensor | None, theta: Any, gamma: Any, kernel: str) -> Tensor:
    """The same with strengths of which at least one is a tensor."""
    if torch.is_grad_enabled() and any(
        isinstance(part, Tensor) and part.requires_grad for part in (x, theta, gamma)
    ):
        return autograd.LearnedArgmax.apply(x, theta, gamma, (keep, kernel))
    return ops.call_argmax_learned(x, keep, 0.0 if theta is None else theta, gamma, kernel, None, None)


def _argmax_rows(omega: KernelRegularizer, rows: Rows) -> Tensor:
    if omega.kernel == "softmax":
        return _softmax(rows)
    first, *later = omega.steps or (omega.kernel,)
    if later == ["sparsemax"] and autograd.has_kernel(rows.x, first) and _is_plain_call(rows):
        first = native.LEADING.get(first, first)
    y = _apply(rows, first)
    for kernel in later:
        y = _apply(rows._replace(x=y, keep=_deletions(rows), theta=None, gamma=1.0), kernel)
    return y


def _deletions(rows: Rows) -> Tensor | None:
    """The mask for a second step, to which scores of -inf are no longer visible."""
    if rows.keep is None and is_plain(rows.x) and rows.x.is_cpu and rows.x.numel():
        return None if bool(rows.x.detach().amin() > -torch.inf) else kept(rows)
    return kept(rows)


def _apply(rows: Rows, kernel: str) -> Tensor:
    x, keep, theta, gamma = rows.x, rows.keep, rows.theta, rows.gamma
    core = autograd.has_kernel(x, kernel)
    if core and _is_plain_call(rows):
        if isinstance(theta, Tensor) or isinstance(gamma, Tensor):
            return _learned(x.contiguous(), keep, theta, gamma, kernel)
        return _PLAIN[x.dtype](x.contiguous(), keep, float(theta or 0.0), float(gamma), kernel)
    if core and compiled.suits():
        return compiled.argmax(x, keep, theta, gamma, kernel)
    x = rows.divided(centred=not kernel.startswith("prox"))
    if is_exporting():
        return exported.argmax(x, keep, theta, kernel)
    if core and not isinstance(theta, Tensor):
        return autograd.argmax(x, keep, theta, kernel)
    # Tensor operations derive neighbours and counts from the mask: it must delete the scores of -inf too. In a row
    # whose result is NaN these positions are NaN as well, as in softmax.
    y = autograd.argmax(x, kept(rows), theta, kernel)
    undefined = y.detach().isnan().any(-1, keepdim=True)
    return y.masked_fill(undefined if keep is None else undefined & keep, torch.nan)


def _softmax(rows: Rows) -> Tensor:
    if not rows.x.shape[-1]:
        return rows.x.clone()
    x = rows.divided()
    x = x if rows.keep is None else torch.where(rows.keep, x, -torch.inf)
    # torch gives NaN for a row in which every score is -inf; here such a row has zero weights and no gradient.
    dead = x.detach().amax(-1, keepdim=True) == -torch.inf
    y = torch.softmax(torch.where(dead, 0.0, x), -1).masked_fill(dead, 0.0)
    return y if rows.keep is None else torch.where(rows.keep, y, 0.0)


def kept(rows: Rows) -> Tensor:
    """The positions that take part: kept by the mask, and not -inf."""
    finite = rows.x.detach() != -torch.inf
    return finite if rows.keep is None else finite & rows.keep


def maximum(omega: Regularizer, x: Tensor, dim: int, gamma: Any, mask: Any) -> Tensor:
    """max_Omega(x) along `dim`; -inf for rows without kept positions."""
    rows, argmax_rows = _lay_out("regularized_max(...)", omega, x, dim, gamma, mask)

    def by_tensors(x: Tensor, theta: Any, gamma: Any) -> Tensor:
        same = rows._replace(x=x, theta=theta, gamma=gamma)
        value, top = objective(omega, same, argmax_rows(same))
        return (top + gamma * value)[..., 0]

    kernel = omega.exact.kernel if isinstance(omega, KernelRegularizer) else ""
    if autograd.has_kernel(rows.x, kernel) and _is_plain_call(rows):
        call = rows.x.contiguous(), rows.keep, rows.theta, rows.gamma, kernel
        return maximum_rows(*call, by_tensors).to(rows.dtype)
    return by_tensors(rows.x, rows.theta, rows.gamma).to(rows.dtype)


def _is_plain_call(rows: Rows) -> bool:
    strengths = (own for own in (rows.theta, rows.gamma) if isinstance(own, Tensor))
    return is_plain(rows.x) and all(is_plain(own) for own in strengths)


def duality_gap(omega: Regularizer, x: Tensor, y: Tensor, dim: int, gamma: Any, mask: Any) -> Tensor:
    """An upper bound on the suboptimality of y, computed in float64."""
    rows, _ = _lay_out("duality_gap(...)", omega, x, dim, gamma, mask)
    weights = prepare("duality_gap(...): y", y, dim, 1.0, None).x
    work = rows.x.dtype if x.device.type == "mps" else torch.float64  # MPS has no float64
    theta, gamma = (
        value.to(work) if isinstance(value, Tensor) else value for value in (rows.theta, rows.gamma)
    )
    if isinstance(omega, KernelRegularizer):
        omega = omega.with_theta(theta)
    tolerance = torch.finfo(y.dtype).eps ** 0.5
    keep = kept(rows).expand(rows.x.shape)
    gap = duality.gap(omega, rows.x.to(work), weights.to(work), keep, gamma, tolerance)
    return _restore_values(rows, gap[..., None])


def fenchel_young(
    omega: Regularizer,
    x: Tensor,
    target: Tensor,
    dim: int,
    gamma: Any,
    mask: Any,
    call: str = "fenchel_young_loss(...)",
) -> Tensor:
    """max_Omega(x) + gamma Omega(q) - <x, q>; `target` holds class indices or, if floating, distributions q."""
    rows, argmax_rows = _lay_out(call, omega, x, dim, gamma, mask)
    if check_target(call, target, x, rows.dim) == "classes":
        index = target.long()
        if is_plain(index) and index.is_cpu and index.numel():
            check_classes(call, int(index.min()), int(index.max()), x.shape[rows.dim])
        index = index.unsqueeze(-1)
    else:
        index = target.movedim(rows.dim, -1).to(rows.x.dtype)
        if is_plain(index) and index.is_cpu:
            fixed, tolerance = index.detach(), torch.finfo(target.dtype).eps ** 0.5
            off = (fixed.sum(-1) - 1).abs() > tolerance
            check_distribution(call, bool((fixed < 0).any() or off.any()))
    return _restore_values(rows, losses.fenchel_young(losses.Problem(omega, argmax_rows, rows), index))


def linear_fenchel_young(
    call: str,
    omega: Regularizer,
    gamma: Any,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    ignore_index: int,
    reduction: str,
) -> Tensor:
    """The Fenchel-Young loss of hidden weight^T + bias, in blocks of rows; arguments have been checked but gamma."""
    argmax_rows: Callable[[Rows], Tensor] = partial(smooth.argmax_rows, omega)
    theta = None
    if isinstance(omega, KernelRegularizer):
        omega = omega.exact
        argmax_rows, theta = partial(_argmax_rows, omega), omega.theta
    elif omega.value(weight.detach()[:1].new_ones(1, 1)).requires_grad:
        raise TypeError(
            f"`{call}` does not learn a regularizer's own parameters. Got {type(omega).__name__}, which has some: "
            "use `fenchel_young_loss`."
        )
    dtype = torch.get_autocast_dtype(hidden.device.type) if _autocast(hidden) else hidden.dtype
    inputs = linear_loss.Inputs(
        hidden.reshape(hidden.shape[:-1].numel(), hidden.shape[-1]).to(dtype),
        weight.to(dtype),
        None if bias is None else bias.to(dtype),
    )
    rows = target.reshape(-1).long()
    if is_plain(rows) and rows.is_cpu and bool((rows != ignore_index).any()):
        classes = rows[rows != ignore_index]
        check_classes(call, int(classes.min()), int(classes.max()), len(weight))
    bounds = Bounds(f"{call}: gamma", above=0.0)
    gamma = _one_number(call, gamma, bounds, inputs.hidden)
    if theta is not None and isinstance(omega, KernelRegularizer) and omega.bounds is not None:
        theta = _one_number(call, theta, omega.bounds, inputs.hidden)
    mapping = linear_rows.Mapping(omega, argmax_rows, gamma, theta)
    loss = linear_loss.linear_fenchel_young(mapping, inputs, rows, ignore_index, reduction)
    return (loss.reshape(target.shape) if reduction == "none" else loss).to(dtype)


def _autocast(x: Tensor) -> bool:
    return torch.is_autocast_enabled(x.device.type)


def _one_number(call: str, value: Any, bounds: Bounds, like: Tensor) -> Any:
    """A strength that all rows share, checked against its bounds: a number, or a tensor of one number."""
    bounds.check(value)
    if not isinstance(value, Tensor):
        return value
    if value.numel() != 1:
        raise ValueError(
            f"`{call}` takes strengths that all rows share, tensors of one number. Got shape {tuple(value.shape)}: "
            "use `fenchel_young_loss`."
        )
    if is_plain(value) and value.is_cpu:
        bounds.check(float(value.detach()))
    work = torch.float64 if like.dtype == torch.float64 else torch.float32
    return value.reshape(()).to(device=like.device, dtype=work)


def _lay_out(
    call: str, omega: Regularizer, x: Tensor, dim: int, gamma: Any, mask: Any
) -> tuple[Rows, Callable[[Rows], Tensor]]:
    """The rows, and the exact argmax on them: max_Omega depends only on Omega, even if the mapping is approximate."""
    if not isinstance(omega, KernelRegularizer):
        return prepare(call, x, dim, gamma, mask), partial(smooth.argmax_rows, omega)
    exact = omega.exact
    return prepare(call, x, dim, gamma, mask, exact.theta, exact.bounds), partial(_argmax_rows, exact)


def objective(omega: Regularizer, rows: Rows, y: Tensor) -> tuple[Tensor, Tensor]:
    """<x - top, y> / gamma - Omega(y) for every row, and top, its largest kept score; both keep the last dimension.

    Differentiating through y is correct at every order: the term that it adds to the gradient, J (x - grad Omega(y)),
    is zero, because that vector is constant on the support. Its rounding error is small, because x is centred.
    """
    keep = kept(rows)
    scores = torch.where(keep, rows.x, -torch.inf)
    top = (
        scores.detach().amax(-1, keepdim=True)
        if scores.shape[-1]
        else scores.new_full(scores[..., :1].shape, -torch.inf)
    )
    centred = torch.where(keep, rows.x - top.masked_fill(top == -torch.inf, 0.0), 0.0) / rows.gamma
    centred = centred.clamp(min=torch.finfo(centred.dtype).min)  # -inf times a weight of 0 would be NaN
    # Weight on a deleted position makes the objective -inf, because its score is -inf.
    forbidden = (~keep & (y != 0)).any(-1, keepdim=True)
    inner = (centred * y).sum(-1, keepdim=True).masked_fill(forbidden, -torch.inf)
    if isinstance(omega, KernelRegularizer):
        return inner - omega.with_theta(rows.theta).value(y, keep)[..., None], top
    return inner - omega.value(y)[..., None], top


def _restore_values(rows: Rows, values: Tensor) -> Tensor:
    return values[..., 0].to(rows.dtype)


def prox(kernel: str, x: Tensor, dim: int, lam: Any, bounds: Bounds) -> Tensor:
    """A proximal operator without projection onto the simplex, such as `prox_tv1d`, along `dim`."""
    rows = prepare(f"{kernel}(...)", x, dim, 1.0, None, lam, bounds)
    return rows.restore(_apply(rows, kernel))


def prox_owl(x: Tensor, weights: Tensor, dim: int) -> Tensor:
    """The proximal operator of the ordered weighted L1 norm along `dim`."""
    rows = prepare("prox_owl(...)", x, dim, 1.0, None)
    check_owl_weights(weights, x, rows.x.shape[-1])
    if is_plain(weights) and weights.is_cpu:
        fixed = weights.detach()
        check_owl_order(bool(fixed.isfinite().all() and (fixed >= 0).all() and (fixed.diff() <= 0).all()))
    return rows.restore(owl.prox_owl(rows.x, weights.to(rows.x)))
