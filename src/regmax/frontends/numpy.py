"""The front end for NumPy arrays."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regmax import duality
from regmax.arrays import check_plain, framework, is_array
from regmax.extras import how_to_install
from regmax.frontends.checks import (
    CAPPED,
    check_capped,
    check_capped_arrays,
    check_classes,
    check_dim,
    check_distribution,
    check_mask,
    check_owl_order,
    check_owl_weights,
    check_scores,
    check_target,
    parameter_shape,
)
from regmax.kernels import capped, native, reference
from regmax.regularizers import KernelRegularizer, Regularizer
from regmax.regularizers.base import Bounds


class Rows(NamedTuple):
    """Scores as contiguous rows in float32 or float64, or float16 if the core reads them, and their original layout."""

    x: NDArray[Any]  # (n, d)
    keep: NDArray[np.bool_] | None  # (n, d)
    theta: Any  # None, a number, or (n,)
    gamma: Any  # a number, or (n,)
    shape: tuple[int, ...]  # of the scores with `dim` moved to the end
    dim: int
    dtype: np.dtype[Any]

    def restore(self, y: NDArray[Any]) -> NDArray[Any]:
        """Rows of weights in the scores' layout and dtype."""
        return np.moveaxis(y.reshape(self.shape), -1, self.dim).astype(self.dtype, copy=False)

    def restore_values(self, values: NDArray[Any]) -> Any:
        """One number per row as an array of the scores' shape without `dim`."""
        return values.reshape(self.shape[:-1]).astype(self.dtype, copy=False)[()]


def prepare(
    call: str,
    x: NDArray[Any],
    dim: int,
    gamma: Any,
    mask: Any,
    theta: Any = None,
    bounds: Bounds | None = None,
    *,
    halves: bool = False,
) -> Rows:
    """Check the arguments and lay the scores out as rows, in float32 if they are float16, unless `halves`."""
    check_scores(call, x)
    if x.dtype.itemsize > 8:
        raise TypeError(
            f"`{call}` computes in at most float64. Got {x.dtype}: convert with `.astype('float64')`."
        )
    dim = check_dim(call, dim, x.ndim)
    keeps_halves = halves and x.dtype == np.float16
    work = x.dtype if keeps_halves else np.dtype(np.float64 if x.dtype.itemsize == 8 else np.float32)
    moved = np.moveaxis(x, dim, -1)
    n, d = int(np.prod(moved.shape[:-1], dtype=np.int64)), moved.shape[-1]
    rows = np.ascontiguousarray(moved, dtype=work).reshape(n, d)
    gamma = _parameter(call, gamma, Bounds(f"{call}: gamma", above=0.0), x.shape, dim)
    if mask is not None:
        check_mask(call, mask, x)
        mask = np.ascontiguousarray(np.moveaxis(np.broadcast_to(mask, x.shape), dim, -1)).reshape(n, d)
    theta = None if bounds is None else _parameter(call, theta, bounds, x.shape, dim)
    return Rows(rows, mask, theta, gamma, moved.shape, dim, x.dtype)


def _parameter(call: str, value: Any, bounds: Bounds, shape: tuple[int, ...], dim: int) -> Any:
    """A strength, checked against its bounds: a number, or one per row."""
    check_plain(bounds.call, value)
    bounds.check(value)
    if not is_array(value):
        return value
    if framework(value) != "numpy":
        raise TypeError(
            f"`{call}`: parameters of NumPy scores are numbers or NumPy arrays. Got {type(value).__name__}."
        )
    for extreme in (value.min(), value.max()) if value.size else ():
        bounds.check(float(extreme))
    full = value.reshape(parameter_shape(bounds.call, value.shape, shape, dim))
    ones = tuple(1 if i == dim else size for i, size in enumerate(shape))
    return np.moveaxis(np.broadcast_to(full, ones), dim, -1).reshape(-1).astype(np.float64)


def _kernels(kernel: str) -> Any:
    return native if native.available() and kernel in native.CODES else reference


def mapping(
    omega: type[KernelRegularizer], theta: Any, x: NDArray[Any], dim: int, gamma: Any, mask: Any
) -> NDArray[Any]:
    """Pi_Omega(x), given the regularizer's class and strength."""
    return argmax(omega.made(theta), x, dim, gamma, mask)


def argmax(omega: Regularizer, x: NDArray[Any], dim: int, gamma: Any, mask: Any) -> NDArray[Any]:
    """Pi_Omega(x) along `dim`."""
    if not isinstance(omega, KernelRegularizer):
        return _by_torch("argmax", omega, x, dim, gamma, mask)
    halves = not omega.steps and _kernels(omega.kernel) is native  # the core converts them, a block at a time
    rows = prepare(omega.call, x, dim, gamma, mask, omega.theta, omega.bounds, halves=halves)
    return rows.restore(_argmax_rows(omega, rows))


def _argmax_rows(omega: KernelRegularizer, rows: Rows) -> NDArray[Any]:
    first, *later = omega.steps or (omega.kernel,)
    if later == ["sparsemax"] and _kernels(first) is native:
        first = native.LEADING.get(first, first)
    y = _kernels(first).argmax(first, rows.x, rows.keep, rows.theta, gamma=rows.gamma)
    for kernel in later:
        y = _kernels(kernel).argmax(kernel, y, kept(rows), None)
    return y


def kept(rows: Rows) -> NDArray[np.bool_]:
    """The positions that take part: kept by the mask, and not -inf."""
    finite = rows.x != -np.inf
    return finite if rows.keep is None else finite & rows.keep


def maximum(omega: Regularizer, x: NDArray[Any], dim: int, gamma: Any, mask: Any) -> Any:
    """max_Omega(x) along `dim`; -inf for rows without kept positions."""
    if not isinstance(omega, KernelRegularizer):
        return _by_torch("maximum", omega, x, dim, gamma, mask)
    exact = omega.exact
    rows = prepare("regularized_max(...)", x, dim, gamma, mask, exact.theta, exact.bounds)
    value, top = _objective(exact, rows, _argmax_rows(exact, rows))
    return rows.restore_values(top + rows.gamma * value)


def duality_gap(omega: Regularizer, x: NDArray[Any], y: NDArray[Any], dim: int, gamma: Any, mask: Any) -> Any:
    """An upper bound on the suboptimality of y, computed in float64."""
    check_plain("duality_gap(omega, scores, y)", y)
    if not isinstance(omega, KernelRegularizer):
        return _by_torch("duality_gap", omega, x, y, dim, gamma, mask)
    rows = prepare("duality_gap(...)", x, dim, gamma, mask, omega.theta, omega.bounds)
    weights = prepare("duality_gap(...): y", y, dim, 1.0, None).x.astype(np.float64)
    theta, gamma = (value[:, None] if is_array(value) else value for value in (rows.theta, rows.gamma))
    x, omega, tolerance = rows.x.astype(np.float64), omega.with_theta(theta), np.finfo(y.dtype).eps ** 0.5
    with np.errstate(
        invalid="ignore", divide="ignore", over="ignore"
    ):  # rows of NaN, or without a kept position
        return rows.restore_values(duality.gap(omega, x, weights, kept(rows), gamma, tolerance))


def _objective(omega: KernelRegularizer, rows: Rows, y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """<x - top, y> / gamma - Omega(y) for every row, and top, its largest kept score."""
    keep = kept(rows)
    top = np.max(rows.x, axis=-1, where=keep, initial=-np.inf)
    gamma = np.reshape(rows.gamma, (-1, 1)).astype(y.dtype)
    with np.errstate(over="ignore"):  # -inf times a weight of 0 would be NaN
        centred = np.where(keep, rows.x - np.where(np.isfinite(top), top, 0)[:, None], 0) / gamma
    centred = np.maximum(centred, np.finfo(y.dtype).min)
    # Weight on a deleted position makes the objective -inf, because its score is -inf.
    forbidden = np.where((~keep & (y != 0)).any(-1), np.inf, 0)
    theta = rows.theta[:, None].astype(y.dtype) if is_array(rows.theta) else rows.theta
    return (centred * y).sum(-1) - forbidden - omega.with_theta(theta).value(y, keep), top


def fenchel_young(
    omega: Regularizer,
    x: NDArray[Any],
    target: NDArray[Any],
    dim: int,
    gamma: Any,
    mask: Any,
    call: str = "fenchel_young_loss(...)",
) -> Any:
    """max_Omega(x) + gamma Omega(q) - <x, q>; `target` holds class indices or, if floating, distributions q."""
    if not isinstance(omega, KernelRegularizer):
        return _by_torch("fenchel_young", omega, x, target, dim, gamma, mask)
    exact = omega.exact
    rows = prepare(call, x, dim, gamma, mask, exact.theta, exact.bounds)
    q = _target_rows(call, target, x, rows)
    keep, y = kept(rows), _argmax_rows(exact, rows).astype(np.float64)
    scores = np.where(keep, rows.x, -np.inf).astype(np.float64)
    top = scores.max(-1, keepdims=True)
    theta, gamma = (value[:, None] if is_array(value) else value for value in (rows.theta, rows.gamma))
    at = exact.with_theta(theta)
    with np.errstate(invalid="ignore", over="ignore"):  # rows of NaN or +inf, or without kept positions
        centred = np.maximum(np.where(keep, scores - top, 0), np.finfo(np.float64).min)
        inner = (centred * (y - q)).sum(-1)
        entropy = (at.value(q, keep) - at.value(y, keep))[:, None]
        loss = np.maximum(inner + (gamma * entropy)[:, 0], 0)
    return rows.restore_values(np.where((~keep & (q != 0)).any(-1), np.inf, loss))


def _target_rows(call: str, target: NDArray[Any], x: NDArray[Any], rows: Rows) -> NDArray[np.float64]:
    """The target as one distribution per row."""
    n, d = rows.x.shape
    if check_target(call, target, x, rows.dim) == "classes":
        index = target.reshape(n).astype(np.int64)
        if n:
            check_classes(call, int(index.min()), int(index.max()), d)
        q = np.zeros((n, d))
        q[np.arange(n), index] = 1
        return q
    q = np.moveaxis(target, rows.dim, -1).reshape(n, d).astype(np.float64)
    off = abs(q.sum(-1) - 1) > np.finfo(target.dtype).eps ** 0.5
    check_distribution(call, bool((q < 0).any() or off.any()))
    return q


def prox(kernel: str, x: NDArray[Any], dim: int, lam: Any, bounds: Bounds) -> NDArray[Any]:
    """A proximal operator without projection onto the simplex, such as `prox_tv1d`, along `dim`."""
    rows = prepare(f"{kernel}(...)", x, dim, 1.0, None, lam, bounds)
    return rows.restore(_kernels(kernel).argmax(kernel, rows.x, None, rows.theta))


def prox_owl(x: NDArray[Any], weights: NDArray[Any], dim: int) -> NDArray[Any]:
    """The proximal operator of the ordered weighted L1 norm along `dim`."""
    rows = prepare("prox_owl(...)", x, dim, 1.0, None)
    check_owl_weights(weights, x, rows.x.shape[-1])
    weights = np.ascontiguousarray(weights, dtype=np.float64)
    check_owl_order(bool(np.isfinite(weights).all() and (np.diff(weights, append=0.0) <= 0).all()))
    return rows.restore((native if native.available() else reference).prox_owl(rows.x, weights))


def project_capped_simplex(x: NDArray[Any], dim: int, upper: Any, total: Any) -> NDArray[Any]:
    """clip(x - tau, 0, upper) with sum `total` along `dim`."""
    check_scores(CAPPED, x)
    dim = check_dim(CAPPED, dim, x.ndim)
    check_capped_arrays(x, upper, total)
    if not x.size:
        return x.copy()
    sums = np.asarray(total, np.float64)
    shape = parameter_shape("project_capped_simplex(..., total=...)", sums.shape, x.shape, dim)
    bounds = np.broadcast_to(np.asarray(upper, np.float64), x.shape)
    arrays = x.astype(np.float64), bounds, sums.reshape(shape)
    rows, bounds, sums = (np.moveaxis(array, dim, -1) for array in arrays)
    most = np.where(rows == -np.inf, 0.0, bounds).sum(-1, keepdims=True)
    short = most < sums * (1 - float(np.finfo(x.dtype).eps) * rows.shape[-1])
    first = (
        (float(most[short][0]), float(np.broadcast_to(sums, most.shape)[short][0])) if short.any() else None
    )
    check_capped(bool((bounds >= 0).all()), bool(((sums >= 0) & np.isfinite(sums)).all()), first)
    with np.errstate(invalid="ignore", over="ignore"):  # rows of NaN or +inf
        y = capped.project(rows, bounds, sums)
    return np.moveaxis(y, -1, dim).astype(x.dtype)


def _by_torch(name: str, omega: Regularizer, x: NDArray[Any], *arguments: Any) -> Any:
    """Smooth regularizers use PyTorch operations: convert NumPy arrays to tensors and back."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"A `SmoothRegularizer` needs PyTorch: {how_to_install('torch')}.") from error
    from regmax.frontends import torch as torch_frontend

    tensors = [torch.as_tensor(a.copy()) if isinstance(a, np.ndarray) else a for a in (x, *arguments)]
    with torch.no_grad():
        result = getattr(torch_frontend, name)(omega, *tensors)
    return result.numpy()[()]
