"""Argument checks that the front ends share, and their messages. No array entries are read here."""

from typing import Any, Literal

from regmax.arrays import NUMBER, check_plain, framework, is_floating


def check_scores(call: str, x: Any) -> None:
    """Raise unless the scores are floating-point and have at least one dimension."""
    if not is_floating(x):
        raise TypeError(f"`{call}` needs floating-point scores. Got {x.dtype}: convert them first.")
    if x.ndim == 0:
        raise ValueError(f"`{call}` needs scores with at least one dimension. Got a single number.")


def check_dim(call: str, dim: int, ndim: int) -> int:
    """`dim` as a nonnegative index; raise if it is out of range."""
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise TypeError(f"`{call}` needs an integer `dim`. Got {type(dim).__name__}.")
    if not -ndim <= dim < ndim:
        raise ValueError(f"`{call}` needs `dim` from {-ndim} to {ndim - 1}. Got {dim}.")
    return dim % ndim


def check_mask(call: str, mask: Any, x: Any) -> None:
    """Raise unless the mask is boolean, of the scores' framework, and broadcasts to their shape."""
    check_plain(f"{call}: mask", mask)
    # NumPy masks of JAX scores are constants of the program, as in JAX itself.
    if framework(mask) != framework(x) and (framework(mask), framework(x)) != ("numpy", "jax"):
        raise TypeError(
            f"`{call}`: `mask` must be of the scores' kind, {type(x).__name__}. Got {type(mask).__name__}."
        )
    if str(mask.dtype).removeprefix("torch.") != "bool":
        raise TypeError(
            f"`{call}`: `mask` must be boolean, True = keep. Got {mask.dtype}: compare first, e.g. `mask > 0`."
        )
    if not broadcasts(mask.shape, x.shape):
        raise ValueError(
            f"`{call}`: `mask` must broadcast to the scores' shape {tuple(x.shape)}. Got {tuple(mask.shape)}."
        )


def broadcasts(shape: Any, target: Any) -> bool:
    """Whether `shape` broadcasts to exactly `target`."""
    if len(shape) > len(target):
        return False
    # No generator: the compiler of torch 2.9 and before does not trace `zip` of reversed sizes.
    for i in range(1, len(shape) + 1):  # noqa: SIM110
        if shape[-i] != 1 and shape[-i] != target[-i]:
            return False
    return True


def parameter_shape(call: str, shape: Any, x_shape: Any, dim: int) -> tuple[int, ...]:
    """The shape of an array parameter, extended to all dimensions of the scores.

    The parameter broadcasts against the scores with size 1 along `dim` (one per head: `(heads, 1, 1)`), or else
    against the rows, which are the scores' dimensions without `dim`.
    """
    ones = tuple(1 if i == dim else size for i, size in enumerate(x_shape))
    if broadcasts(shape, ones):
        return (1,) * (len(x_shape) - len(shape)) + tuple(shape)
    rows = tuple(size for i, size in enumerate(x_shape) if i != dim)
    if broadcasts(shape, rows):
        padded = (1,) * (len(rows) - len(shape)) + tuple(shape)
        return (*padded[:dim], 1, *padded[dim:])
    raise ValueError(
        f"`{call}` must broadcast against the scores with size 1 along `dim`, to {ones}. Got {tuple(shape)}."
    )


def check_target(call: str, target: Any, x: Any, dim: int) -> Literal["classes", "distributions"]:
    """Whether a target holds class indices or distributions; raise unless it is of the scores' framework and shape."""
    check_plain(f"{call}: target", target)
    if framework(target) != framework(x) and (framework(target), framework(x)) != ("numpy", "jax"):
        raise TypeError(
            f"`{call}`: `target` must be of the scores' kind, {type(x).__name__}. Got {type(target).__name__}."
        )
    name = str(target.dtype).removeprefix("torch.")
    if is_floating(target):
        expected, meaning = tuple(x.shape), "a distribution for every row"
    elif name.startswith(("int", "uint")):
        expected, meaning = tuple(x.shape[:dim]) + tuple(x.shape[dim + 1 :]), "a class index for every row"
    else:
        raise TypeError(
            f"`{call}`: `target` must hold integers, the classes, or floating-point distributions. Got {name}."
        )
    if tuple(target.shape) != expected:
        raise ValueError(
            f"`{call}`: `target` must be {meaning}, shape {expected}. Got {tuple(target.shape)}."
        )
    if not x.shape[dim]:
        raise ValueError(f"`{call}` needs at least one class. Got scores of shape {tuple(x.shape)}.")
    return "distributions" if is_floating(target) else "classes"


def check_classes(call: str, least: int, most: int, d: int) -> None:
    """Raise unless the class indices, given by their extremes, lie in 0, ..., d - 1."""
    if least < 0 or most >= d:
        raise IndexError(
            f"`{call}`: class indices must lie in 0 to {d - 1}. Got {least if least < 0 else most}."
        )


def check_distribution(call: str, wrong: bool) -> None:
    """Raise if some row of a target is not a distribution."""
    if wrong:
        raise ValueError(
            f"`{call}`: a floating-point `target` must be non-negative and sum to 1 along `dim`. "
            "Got other numbers: normalize them, or pass class indices as integers."
        )


def check_owl_weights(weights: Any, x: Any, d: int) -> None:
    """Raise unless OWL weights are of the scores' framework, one per position."""
    check_plain("prox_owl(x, weights)", weights)
    if framework(weights) != framework(x):
        raise TypeError(
            f"`prox_owl(x, weights)` needs weights of x's kind, {type(x).__name__}. Got {type(weights).__name__}."
        )
    if tuple(weights.shape) != (d,):
        raise ValueError(
            f"`prox_owl(x, weights)` needs one weight per position, shape ({d},). Got {tuple(weights.shape)}."
        )


def check_owl_order(ordered: bool) -> None:
    """Raise unless OWL weights are nonnegative and nonincreasing: otherwise the penalty is not a norm."""
    if not ordered:
        raise ValueError(
            "`prox_owl(x, weights)` needs finite, non-negative, non-increasing weights. Got others: sort them."
        )


CAPPED = "project_capped_simplex(x)"


def check_capped(bounds: bool, totals: bool, short: tuple[float, float] | None) -> None:
    """Raise unless bounds are non-negative, totals non-negative and finite, and no row's bounds sum to less."""
    if not bounds:
        raise ValueError("`project_capped_simplex(..., upper=...)` must be non-negative. Got other numbers.")
    if not totals:
        raise ValueError(
            "`project_capped_simplex(..., total=...)` must be non-negative and finite. Got other numbers."
        )
    if short is not None:
        raise ValueError(
            "`project_capped_simplex(..., upper=..., total=...)` needs upper bounds that sum to at least the total. "
            f"Got a row with sum {short[0]:g} and total {short[1]:g}: the problem has no solution."
        )


def check_capped_arrays(x: Any, upper: Any, total: Any) -> None:
    """Raise unless the bounds and the total are numbers or arrays of x's framework, and the bounds broadcast to x."""
    for name, value in (("upper", upper), ("total", total)):
        call = f"project_capped_simplex(..., {name}=...)"
        check_plain(call, value)
        if framework(value) is None:
            if isinstance(value, bool) or not isinstance(value, NUMBER):
                raise TypeError(f"`{call}` must be a number or an array. Got {type(value).__name__}.")
        elif framework(value) != framework(x):
            raise TypeError(
                f"`{call}` must be a number or of x's kind, {type(x).__name__}. Got {type(value).__name__}."
            )
    if framework(upper) is not None and not broadcasts(upper.shape, x.shape):
        raise ValueError(
            f"`project_capped_simplex(..., upper=...)` must broadcast to x's shape {tuple(x.shape)}. "
            f"Got {tuple(upper.shape)}."
        )
