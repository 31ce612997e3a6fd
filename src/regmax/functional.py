"""The public functions: the mappings, max_Omega and Pi_Omega, the duality gap, and the proximal operators.

Common arguments: `dim` is the dimension of the scores; `mask` is boolean, True = keep, and broadcasts to the scores;
masked positions and scores of -inf are deleted; `gamma`, `lam`, `p` and `alpha` are numbers, or arrays of the scores'
framework that broadcast against the scores with size 1 along `dim` (one per head: shape `(heads, 1, 1)`).
"""

from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from regmax.arrays import A, AnyArray, Array, Strength
from regmax.frontends import frontend
from regmax.mappings import parse
from regmax.regularizers import (
    FusedLasso,
    KernelRegularizer,
    NegativeEntropy,
    NegativeTsallisEntropy,
    Oscar,
    Regularizer,
    SquaredNorm,
    SquaredPNorm,
)
from regmax.regularizers.base import Bounds

F = TypeVar("F", bound=np.floating[Any])


def softmax(scores: Array[A], dim: int = -1, *, gamma: Strength = 1.0, mask: AnyArray | None = None) -> A:
    """Softmax with temperature gamma: argmax over the simplex of <x, y> - gamma sum_i y_i log y_i.

    Args:
        scores: a NumPy array, a torch tensor or a JAX array.
        dim: the dimension that is mapped to the simplex.
        gamma: the temperature, positive.
        mask: boolean, True = keep.

    Returns:
        Weights of the scores' shape and type, which sum to 1 along `dim`.

    Example:
        >>> import numpy as np, regmax
        >>> print(regmax.softmax(np.array([1.0, 0.9, 0.6])).round(3))
        [0.388 0.351 0.26 ]
    """
    return frontend("softmax(scores)", scores).mapping(NegativeEntropy, None, scores, dim, gamma, mask)


def sparsemax(scores: Array[A], dim: int = -1, *, gamma: Strength = 1.0, mask: AnyArray | None = None) -> A:
    """Sparsemax: argmax over the simplex of <x, y> - gamma/2 ||y||^2, the projection of x / gamma (Section 2.3).

    Args:
        scores: a NumPy array, a torch tensor or a JAX array.
        dim: the dimension that is mapped to the simplex.
        gamma: the strength of the regularizer, positive; the smaller, the sparser the weights.
        mask: boolean, True = keep.

    Returns:
        Weights of the scores' shape and type, which sum to 1 along `dim`.

    Example:
        >>> import numpy as np, regmax
        >>> print(regmax.sparsemax(np.array([1.0, 0.9, -0.6])))
        [0.55 0.45 0.  ]
    """
    return frontend("sparsemax(scores)", scores).mapping(SquaredNorm, None, scores, dim, gamma, mask)


def fusedmax(
    scores: Array[A],
    dim: int = -1,
    *,
    lam: Strength = 0.1,
    gamma: Strength = 1.0,
    mask: AnyArray | None = None,
) -> A:
    """Fusedmax: argmax over the simplex of <x, y> - gamma (1/2 ||y||^2 + lam sum_i |y_{i+1} - y_i|) (Section 3.2).

    Weights are sparse, and neighbours with close scores get exactly the same weight.

    Args:
        scores: a NumPy array, a torch tensor or a JAX array.
        dim: the dimension that is mapped to the simplex; its order matters.
        lam: how strongly neighbours are fused; 0 is sparsemax.
        gamma: the strength of the whole regularizer, positive.
        mask: boolean, True = keep; the neighbours of a deleted position become adjacent.

    Returns:
        Weights of the scores' shape and type, which sum to 1 along `dim`.

    Example:
        >>> import numpy as np, regmax
        >>> print(regmax.fusedmax(np.array([1.0, 0.9, 0.6]), lam=0.1).round(3))
        [0.4 0.4 0.2]
    """
    return frontend("fusedmax(scores)", scores).mapping(FusedLasso, lam, scores, dim, gamma, mask)


def oscarmax(
    scores: Array[A],
    dim: int = -1,
    *,
    lam: Strength = 0.01,
    gamma: Strength = 1.0,
    mask: AnyArray | None = None,
) -> A:
    """Oscarmax, exact: argmax over the simplex of <x, y> - gamma (1/2 ||y||^2 + lam sum_{i<j} max(y_i, y_j)).

    Weights are sparse, and close scores get exactly the same weight, adjacent or not (Section 3.2). The penalty grows
    with the length d: `lam = c / d` has a similar effect at every length, whereas lam=0.01 gives uniform weights at
    d = 2048. The paper computes an approximation, which is available as `OscarComposition`.

    Args:
        scores: a NumPy array, a torch tensor or a JAX array.
        dim: the dimension that is mapped to the simplex.
        lam: how strongly weights are clustered; 0 is sparsemax.
        gamma: the strength of the whole regularizer, positive.
        mask: boolean, True = keep.

    Returns:
        Weights of the scores' shape and type, which sum to 1 along `dim`.

    Example:
        >>> import numpy as np, regmax
        >>> print(regmax.oscarmax(np.array([1.0, -0.3, 0.9, 0.4]), lam=0.1).round(3))
        [0.467 0.    0.467 0.067]
    """
    return frontend("oscarmax(scores)", scores).mapping(Oscar, lam, scores, dim, gamma, mask)


def sqpnormmax(
    scores: Array[A], dim: int = -1, *, p: Strength = 1.5, gamma: Strength = 1.0, mask: AnyArray | None = None
) -> A:
    """Sqpnormmax: argmax over the simplex of <x, y> - gamma/2 ||y||_p^2, p in (1, 2] (Section 3.1).

    Sparse like sparsemax, which is p = 2; the smaller p, the smoother the transition.

    Args:
        scores: a NumPy array, a torch tensor or a JAX array.
        dim: the dimension that is mapped to the simplex.
        p: the norm, in (1, 2].
        gamma: the strength of the regularizer, positive.
        mask: boolean, True = keep.

    Returns:
        Weights of the scores' shape and type, which sum to 1 along `dim`.

    Example:
        >>> import numpy as np, regmax
        >>> print(regmax.sqpnormmax(np.array([1.0, 0.9, -0.6]), p=1.5).round(3))
        [0.579 0.421 0.   ]
    """
    return frontend("sqpnormmax(scores)", scores).mapping(SquaredPNorm, p, scores, dim, gamma, mask)


def entmax(
    scores: Array[A],
    dim: int = -1,
    *,
    alpha: Strength = 1.5,
    gamma: Strength = 1.0,
    mask: AnyArray | None = None,
) -> A:
    """alpha-entmax: argmax over the simplex of <x, y> - gamma (sum_i y_i^alpha - 1) / (alpha (alpha - 1)).

    The family that joins softmax (alpha = 1) and sparsemax (alpha = 2) continuously: the larger alpha, the sparser.
    At gamma = 1, y_i = ((alpha - 1) x_i - tau)_+^(1 / (alpha - 1)) (Peters, Niculae and Martins, 2019).

    Args:
        scores: a NumPy array, a torch tensor or a JAX array.
        dim: the dimension that is mapped to the simplex.
        alpha: in [1, 2]; learned with `nn.Entmax(learnable="alpha")`.
        gamma: the strength of the regularizer, positive.
        mask: boolean, True = keep.

    Returns:
        Weights of the scores' shape and type, which sum to 1 along `dim`.

    Example:
        >>> import numpy as np, regmax
        >>> print(regmax.entmax(np.array([1.0, 0.5, -1.0]), alpha=1.5).round(3))
        [0.674 0.326 0.   ]
    """
    return frontend("entmax(scores)", scores).mapping(NegativeTsallisEntropy, alpha, scores, dim, gamma, mask)


@overload
def regularized_max(
    omega: Regularizer | str,
    scores: NDArray[F],
    dim: int = -1,
    *,
    gamma: Strength = 1.0,
    mask: AnyArray | None = None,
) -> NDArray[F]: ...
@overload
def regularized_max(
    omega: Regularizer | str,
    scores: Array[A],
    dim: int = -1,
    *,
    gamma: Strength = 1.0,
    mask: AnyArray | None = None,
) -> A: ...
def regularized_max(
    omega: Regularizer | str,
    scores: Any,
    dim: int = -1,
    *,
    gamma: Strength = 1.0,
    mask: AnyArray | None = None,
) -> Any:
    """The paper's max_Omega(x) = max over the simplex of <x, y> - gamma Omega(y); its gradient is `regularized_argmax`.

    Args:
        omega: a regularizer, or the name of a mapping (`"fusedmax,lam=0.2"`).
        scores: a NumPy array, a torch tensor or a JAX array.
        dim: the dimension that is reduced.
        gamma: the strength of the regularizer, positive.
        mask: boolean, True = keep; a row without kept scores gives -inf.

    Returns:
        One value per row.

    Example:
        >>> import numpy as np, regmax
        >>> round(float(regmax.regularized_max(regmax.NegativeEntropy(), np.array([1.0, 0.0]))), 6)
        1.313262
    """
    omega = regularizer_of("regularized_max(omega, ...)", omega)
    return frontend("regularized_max(omega, scores)", scores).maximum(omega, scores, dim, gamma, mask)


def regularized_argmax(
    omega: Regularizer | str,
    scores: Array[A],
    dim: int = -1,
    *,
    gamma: Strength = 1.0,
    mask: AnyArray | None = None,
) -> A:
    """The paper's Pi_Omega(x) = argmax over the simplex of <x, y> - gamma Omega(y), the gradient of `regularized_max`.

    Args:
        omega: a regularizer, or the name of a mapping (`"fusedmax,lam=0.2"`).
        scores: a NumPy array, a torch tensor or a JAX array.
        dim: the dimension that is mapped to the simplex.
        gamma: the strength of the regularizer, positive.
        mask: boolean, True = keep.

    Returns:
        Weights of the scores' shape and type, which sum to 1 along `dim`.

    Example:
        >>> import numpy as np, regmax
        >>> print(regmax.regularized_argmax(regmax.SquaredNorm(), np.array([1.0, 0.5]), gamma=2.0))
        [0.625 0.375]
    """
    omega = regularizer_of("regularized_argmax(omega, ...)", omega)
    front = frontend("regularized_argmax(omega, scores)", scores)
    if isinstance(omega, KernelRegularizer):
        return front.mapping(type(omega), omega.theta, scores, dim, gamma, mask)
    return front.argmax(omega, scores, dim, gamma, mask)


@overload
def duality_gap(
    omega: Regularizer | str,
    scores: NDArray[F],
    y: AnyArray,
    dim: int = -1,
    *,
    gamma: Strength = 1.0,
    mask: AnyArray | None = None,
) -> NDArray[F]: ...
@overload
def duality_gap(
    omega: Regularizer | str,
    scores: Array[A],
    y: AnyArray,
    dim: int = -1,
    *,
    gamma: Strength = 1.0,
    mask: AnyArray | None = None,
) -> A: ...
def duality_gap(
    omega: Regularizer | str,
    scores: Any,
    y: AnyArray,
    dim: int = -1,
    *,
    gamma: Strength = 1.0,
    mask: AnyArray | None = None,
) -> Any:
    """A certificate of optimality: an upper bound on the suboptimality max_Omega(x) + gamma Omega(y) - <x, y> of y.

    It is at least 0, and 0 at the argmax up to rounding. It compares the objective at y with the dual objective at
    a point computed from y. Nothing is solved, so suboptimal weights have a positive gap, whatever code computed them.
    For a `SmoothRegularizer` it is the Frank-Wolfe gap, max_i g_i - <g, y> with g = x - gamma grad Omega(y). By strong
    convexity ||y - argmax||^2 is at most 2 gap / gamma for every regularizer that contains the squared norm. If y is
    not on the simplex, or has weight on a deleted position, the gap is infinite.

    Args:
        omega: a regularizer, or the name of a mapping (`"fusedmax,lam=0.2"`).
        scores: a NumPy array, a torch tensor or a JAX array.
        y: weights of the scores' shape.
        dim: the dimension of the simplex.
        gamma: the strength of the regularizer, positive.
        mask: boolean, True = keep.

    Returns:
        One gap per row.

    Example:
        >>> import numpy as np, regmax
        >>> x = np.array([1.0, 0.5])
        >>> float(regmax.duality_gap(regmax.SquaredNorm(), x, np.array([1.0, 0.0])))
        0.125
        >>> float(regmax.duality_gap(regmax.SquaredNorm(), x, regmax.sparsemax(x)))
        0.0
    """
    omega = regularizer_of("duality_gap(omega, ...)", omega)
    if getattr(y, "shape", None) != scores.shape:
        raise ValueError(
            f"`duality_gap(omega, scores, y)`: `y` must have the scores' shape. Got {tuple(getattr(y, 'shape', ()))}."
        )
    return frontend("duality_gap(omega, scores, y)", scores).duality_gap(omega, scores, y, dim, gamma, mask)


def regularizer_of(call: str, omega: Any) -> Regularizer:
    """The regularizer, given itself or by the name of its mapping."""
    if isinstance(omega, Regularizer):
        return omega
    if isinstance(omega, str):
        row, strengths = parse(omega)
        if "gamma" in strengths:
            raise ValueError(f"`{call}` takes gamma as an argument, not in the name. Got {omega!r}.")
        return row.made(strengths)
    raise TypeError(
        f"`{call}` needs a regularizer, e.g. `regmax.FusedLasso(lam=0.1)`, or a mapping's name. "
        f"Got {type(omega).__name__}."
    )


def project_simplex(x: Array[A], dim: int = -1) -> A:
    """The Euclidean projection onto the simplex along `dim`; `sparsemax` at gamma = 1.

    Args:
        x: a NumPy array, a torch tensor or a JAX array.
        dim: the dimension of x.

    Returns:
        An array like x.

    Example:
        >>> import numpy as np, regmax
        >>> print(regmax.project_simplex(np.array([1.0, 0.5])))
        [0.75 0.25]
    """
    return frontend("project_simplex(x)", x).mapping(SquaredNorm, None, x, dim, 1.0, None)


def project_capped_simplex(x: Array[A], dim: int = -1, *, upper: Strength = 1.0, total: Strength = 1.0) -> A:
    """The Euclidean projection onto the capped simplex: argmin 1/2 ||y - x||^2 with 0 <= y <= upper, sum y = total.

    Constrained sparsemax is this projection with a cap per position, e.g. the remaining fertility of a source word in
    translation. With `total=k` and `upper=1` it is a relaxed choice of k positions: a k-subset. Gradients reach x,
    upper and total. A score of -inf is deleted.

    Args:
        x: a NumPy array or a torch tensor.
        dim: the dimension of x.
        upper: the largest weights, at least 0, may be infinite: a number, or an array that broadcasts to x.
        total: the sum of the weights, at least 0: a number, or an array that broadcasts against x with size 1 along
            `dim`.

    Returns:
        An array like x.

    Example:
        >>> import numpy as np, regmax
        >>> x = np.array([1.0, 0.9, -0.6])
        >>> print(regmax.project_capped_simplex(x, upper=np.array([0.3, 1.0, 1.0])))  # constrained sparsemax
        [0.3 0.7 0. ]
        >>> print(regmax.project_capped_simplex(np.array([3.0, 1.5, 1.0, -2.0]), total=2))  # a choice of two
        [1.   0.75 0.25 0.  ]
    """
    return frontend("project_capped_simplex(x)", x).project_capped_simplex(x, dim, upper, total)


def prox_tv1d(x: Array[A], lam: Strength, dim: int = -1) -> A:
    """argmin over z of 1/2 ||z - x||^2 + lam sum_i |z_{i+1} - z_i|: total variation denoising, exact.

    Args:
        x: a NumPy array, a torch tensor or a JAX array.
        lam: how strongly neighbours are fused; at least 0.
        dim: the dimension of x.

    Returns:
        An array like x.

    Example:
        >>> import numpy as np, regmax
        >>> print(regmax.prox_tv1d(np.array([1.0, 3.0, 0.0]), 0.5))
        [1.5 2.  0.5]
    """
    bounds = Bounds("prox_tv1d(..., lam=...)", above=0.0, closed=True)
    return frontend("prox_tv1d(x, lam)", x).prox("prox_tv1d", x, dim, lam, bounds)


def prox_owl(x: Array[A], weights: AnyArray, dim: int = -1) -> A:
    """argmin over z of 1/2 ||z - x||^2 + sum_k weights_k |z|_(k), |z| sorted decreasingly.

    Args:
        x: a NumPy array or a torch tensor.
        weights: one per position, non-negative and non-increasing; OSCAR's are `lam * (d - k)`, k = 1, ..., d.
        dim: the dimension of x.

    Returns:
        An array like x.

    Example:
        >>> import numpy as np, regmax
        >>> print(regmax.prox_owl(np.array([1.0, -0.9, 0.1]), np.array([0.4, 0.2, 0.0])))
        [ 0.65 -0.65  0.1 ]
    """
    return frontend("prox_owl(x, weights)", x).prox_owl(x, weights, dim)
