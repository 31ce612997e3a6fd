"""Samples: indices drawn from a mapping's weights, and mappings of perturbed scores, which can be differentiated."""

import sys
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from regmax.arrays import A, AnyArray, Array, Strength, as_number, framework, is_array
from regmax.frontends import frontend
from regmax.frontends.checks import check_dim, check_scores
from regmax.functional import regularized_argmax
from regmax.regularizers.base import Bounds
from regmax.resolver import MappingLike, resolve

NOISES = ("gumbel", "gaussian")


@overload
def sample(
    omega: MappingLike,
    scores: NDArray[Any],
    dim: int = -1,
    *,
    gamma: Strength = 1.0,
    mask: AnyArray | None = None,
    num_samples: int = 1,
    generator: Any = None,
) -> NDArray[np.int64]: ...
@overload
def sample(
    omega: MappingLike,
    scores: Array[A],
    dim: int = -1,
    *,
    gamma: Strength = 1.0,
    mask: AnyArray | None = None,
    num_samples: int = 1,
    generator: Any = None,
) -> A: ...
def sample(
    omega: MappingLike,
    scores: Any,
    dim: int = -1,
    *,
    gamma: Strength = 1.0,
    mask: AnyArray | None = None,
    num_samples: int = 1,
    generator: Any = None,
) -> Any:
    """Draw indices with the probabilities Pi_Omega(x); an index of weight zero is never drawn.

    Args:
        omega: a regularizer, the name of a mapping (`"fusedmax,lam=0.2"`), a module, or a function.
        scores: a NumPy array or a torch tensor.
        dim: the dimension that is mapped to the simplex.
        gamma: the strength of the regularizer, positive; a mapping's own gamma is multiplied by it.
        mask: boolean, True = keep. Every row needs a kept score.
        num_samples: the number of independent draws from each row.
        generator: a `torch.Generator`, or for NumPy arrays a `numpy.random.Generator`.

    Returns:
        Integers of the scores' shape without `dim`; for several samples, `dim` has this size.

    Example:
        >>> import numpy as np, regmax
        >>> x = np.array([1.0, 0.9, -0.6])  # the weights are .55, .45 and 0
        >>> draws = regmax.sample("sparsemax", x, num_samples=1000, generator=np.random.default_rng(0))
        >>> print(np.bincount(draws, minlength=3))
        [515 485   0]
    """
    call = "sample(omega, scores)"
    dim = _checked(call, scores, dim, num_samples)
    of_torch = framework(scores) == "torch"
    rng = _generator(call, generator, of_torch=of_torch)
    y = weights(omega, _working(scores.detach() if of_torch else scores), dim, gamma, mask)
    return (_draw_torch if of_torch else _draw_numpy)(call, y, dim, num_samples, rng)


def _draw_torch(call: str, y: Any, dim: int, num_samples: int, rng: Any) -> Any:
    """The first indices whose cumulative weight exceeds uniform numbers; these indices have weight."""
    torch = sys.modules["torch"]
    y = y.detach().movedim(dim, -1)
    cumulative = y.double().cumsum(-1)
    total = cumulative[..., -1:]
    _check_rows(call, bool((total > 0).all()))
    u = torch.rand((*y.shape[:-1], num_samples), generator=rng, dtype=torch.float64, device=y.device) * total
    u = torch.minimum(
        u, torch.nextafter(total, torch.zeros_like(total))
    )  # the product may round to the total
    drawn = torch.searchsorted(cumulative.contiguous(), u.contiguous(), right=True)
    return drawn[..., 0] if num_samples == 1 else drawn.movedim(-1, dim)


def _draw_numpy(call: str, y: Any, dim: int, num_samples: int, rng: Any) -> Any:
    y = np.moveaxis(y, dim, -1)
    cumulative = y.astype(np.float64).cumsum(-1)
    total = cumulative[..., -1:]
    _check_rows(call, bool((total > 0).all()))
    u = np.minimum(rng.random((*y.shape[:-1], num_samples)) * total, np.nextafter(total, 0))
    drawn = _searched(cumulative.reshape(-1, y.shape[-1]), u.reshape(-1, num_samples)).reshape(u.shape)
    return drawn[..., 0][()] if num_samples == 1 else np.moveaxis(drawn, -1, dim)


def perturbed_argmax(
    omega: MappingLike,
    scores: Array[A],
    dim: int = -1,
    *,
    gamma: Strength = 1.0,
    mask: AnyArray | None = None,
    noise: Literal["gumbel", "gaussian"] = "gumbel",
    sigma: Strength = 1.0,
    num_samples: int = 1,
    hard: bool = False,
    generator: Any = None,
) -> A:
    """The mapping of perturbed scores, Pi_Omega(x + sigma Z): a random sample with gradients, the Gumbel trick.

    With softmax, Gumbel noise and a small gamma it approximates a draw from softmax(x / sigma); with a sparse mapping
    it is exactly sparse. The mean over samples estimates the smoothed mapping E[Pi_Omega(x + sigma Z)], and its
    gradient estimates the expectation's: the noise does not depend on the scores.

    Args:
        omega: a regularizer, the name of a mapping (`"fusedmax,lam=0.2"`), a module, or a function.
        scores: a NumPy array or a torch tensor.
        dim: the dimension that is mapped to the simplex.
        gamma: the strength of the regularizer, positive; a mapping's own gamma is multiplied by it.
        mask: boolean, True = keep.
        noise: "gumbel" or "gaussian", of mean 0.577 and 0 and variance 1.645 and 1.
        sigma: the scale of the noise, at least 0: a number, or an array that broadcasts against the scores.
        num_samples: the number of independent samples.
        hard: return one-hot weights at the largest weight, with the gradient of the soft ones (straight-through).
        generator: a `torch.Generator`, or for NumPy arrays a `numpy.random.Generator`.

    Returns:
        Weights of the scores' shape; for several samples with a first dimension of this size.

    Example:
        >>> import torch, regmax
        >>> x, generator = torch.tensor([1.0, 0.9, -0.6]), torch.Generator().manual_seed(0)
        >>> y = regmax.perturbed_argmax("sparsemax", x, num_samples=1000, hard=True, generator=generator)
        >>> y.mean(0)  # near softmax(x) = [.475, .430, .096]
        tensor([0.4840, 0.4070, 0.1090])
    """
    call = "perturbed_argmax(omega, scores)"
    dim = _checked(call, scores, dim, num_samples) - scores.ndim
    if noise not in NOISES:
        raise ValueError(f"`perturbed_argmax(..., noise=...)` must be 'gumbel' or 'gaussian'. Got {noise!r}.")
    Bounds("perturbed_argmax(..., sigma=...)", above=0.0, closed=True).check(as_number(sigma))
    if is_array(sigma) and framework(sigma) != framework(scores):
        raise TypeError(
            f"`{call}`: sigma must be a number or of the scores' kind. Got {type(sigma).__name__}."
        )
    of_torch = framework(scores) == "torch"
    rng = _generator(call, generator, of_torch=of_torch)
    x: Any = _working(scores)
    shape = x.shape if num_samples == 1 else (num_samples, *x.shape)
    perturbed = x + sigma * (_torch_noise if of_torch else _numpy_noise)(noise, x, shape, rng)
    y: Any = weights(omega, perturbed, dim, gamma, mask)
    if hard:
        y = _straight_through(y, perturbed, dim)
    return y.to(scores.dtype) if of_torch else y.astype(scores.dtype, copy=False)


def weights(omega: MappingLike, scores: Any, dim: int, gamma: Any, mask: Any) -> Any:
    """The weights of a mapping, whose own gamma is multiplied by `gamma`."""
    found = resolve(omega)
    if found.omega is None:
        if not is_array(gamma) and gamma == 1:
            return found(scores, dim, mask=mask)
        return found(scores / gamma, dim, mask=mask)
    if is_array(found.gamma) or found.gamma != 1:
        gamma = gamma * found.gamma
    return regularized_argmax(found.omega, scores, dim, gamma=gamma, mask=mask)


def _checked(call: str, scores: Any, dim: int, num_samples: int) -> int:
    """`dim` as a nonnegative index, after checking the arguments."""
    frontend(call, scores)
    check_scores(call, scores)
    if isinstance(num_samples, bool) or not isinstance(num_samples, int) or num_samples < 1:
        raise ValueError(f"`{call[:-1]}, num_samples=...)` must be a positive integer. Got {num_samples!r}.")
    return check_dim(call, dim, scores.ndim)


def _check_rows(call: str, good: bool) -> None:
    if not good:
        raise ValueError(
            f"`{call}` needs a kept, finite score in every row. Got a row without one: drop it before."
        )


def _generator(call: str, generator: Any, *, of_torch: bool) -> Any:
    """The generator, checked to be of the scores' framework."""
    expected: Any = sys.modules["torch"].Generator if of_torch else np.random.Generator
    if generator is not None and not isinstance(generator, expected):
        name = "torch.Generator" if of_torch else "numpy.random.Generator"
        raise TypeError(f"`{call[:-1]}, generator=...)` must be a {name}. Got {type(generator).__name__}.")
    return generator if of_torch or generator is not None else np.random.default_rng()


def _working(scores: Any) -> Any:
    """The scores, in single precision if they are in half precision."""
    if scores.dtype.itemsize >= 4:
        return scores
    return scores.float() if framework(scores) == "torch" else scores.astype(np.float32)


def _searched(cumulative: Any, u: Any) -> Any:
    """The first index in every row whose cumulative weight exceeds u; loops over rows or samples, the fewer."""
    if len(u) <= u.shape[1]:
        rows = zip(cumulative, u, strict=True)
        return np.stack([np.searchsorted(row, points, side="right") for row, points in rows])
    return np.stack([(cumulative <= points[:, None]).sum(-1) for points in u.T], axis=-1)


def _torch_noise(noise: str, x: Any, shape: Any, rng: Any) -> Any:
    empty = sys.modules["torch"].empty(shape, dtype=x.dtype, device=x.device)
    if noise == "gaussian":
        return empty.normal_(generator=rng)
    return -empty.exponential_(generator=rng).log()


def _numpy_noise(noise: str, x: Any, shape: Any, rng: Any) -> Any:
    draw = rng.normal if noise == "gaussian" else rng.gumbel
    return draw(size=shape).astype(x.dtype)


def _straight_through(y: Any, perturbed: Any, dim: int) -> Any:
    """One-hot weights at the largest of y, ties broken by the perturbed scores; their gradient is that of y."""
    if framework(y) != "torch":
        y, scores = np.moveaxis(y, dim, -1), np.moveaxis(perturbed, dim, -1)
        top = y.max(-1, keepdims=True)
        best = np.where(y == top, scores, -np.inf).argmax(-1)[..., None]
        hard = np.zeros_like(y)
        np.put_along_axis(hard, best, (top > 0).astype(y.dtype), -1)
        return np.moveaxis(hard + (y - y), -1, dim)
    torch = sys.modules["torch"]
    soft = y.detach()
    top = soft.amax(dim, keepdim=True)
    best = torch.where(soft == top, perturbed.detach(), -torch.inf).argmax(dim, keepdim=True)
    hard = torch.zeros_like(soft).scatter(dim, best, (top > 0).to(soft.dtype))
    return hard + (y - soft)  # exactly `hard`, and NaN in a row of NaN
