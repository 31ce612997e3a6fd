"""The batched tensor kernels agree with the NumPy reference, and both with finite differences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from regmax.kernels import KERNELS, reference, tensors

Array = np.ndarray
THETAS: dict[str, tuple[float | None, ...]] = {
    "softmax": (None,),
    "sparsemax": (None,),
    "fusedmax": (0.0, 0.1, 3.0),
    "oscarmax": (0.0, 0.01, 0.3),
    "sqpnormmax": (1.01, 1.5, 1.9, 2.0),
    "entmax": (1.0, 1.000001, 1.001, 1.25, 1.5, 1.9, 2.0),
    "prox_tv1d": (0.0, 0.1, 3.0),
    "prox_oscar": (0.0, 0.01, 0.3),
}
CASES = [(kernel, theta) for kernel in KERNELS for theta in THETAS[kernel]]
SMOOTH = [("softmax", None), ("sqpnormmax", 1.5), ("sqpnormmax", 1.2), ("entmax", 1.5), ("entmax", 1.2)]
LEARNABLE = [
    ("fusedmax", 0.1),
    ("oscarmax", 0.01),
    ("sqpnormmax", 1.5),
    ("entmax", 1.5),
    ("entmax", 1.05),
    ("prox_tv1d", 0.3),
    ("prox_oscar", 0.02),
]
SIZES = (1, 2, 3, 17, 64, 257)
ROWS: dict[str, Callable[[np.random.Generator, int, int], Array]] = {
    "normal": lambda rng, n, d: rng.normal(size=(n, d)),
    "flat": lambda rng, n, d: 0.03 * rng.normal(size=(n, d)),
    "tiny": lambda rng, n, d: 1e-6 * rng.normal(size=(n, d)),
    "huge": lambda rng, n, d: 1e6 * rng.normal(size=(n, d)),
    "far": lambda rng, n, d: rng.normal(size=(n, d)) + 1e6,
    "constant": lambda rng, n, d: np.repeat(rng.normal(size=(n, 1)), d, axis=1),
    "ties": lambda rng, n, d: rng.integers(0, 4, size=(n, d)) / 2,
    "multiples": lambda rng, n, d: 0.1 * rng.integers(-4, 5, size=(n, d)),
    "ramp": lambda rng, n, d: 0.1 * np.arange(d) * rng.integers(-2, 3, size=(n, 1)),
    "sawtooth": lambda rng, n, d: 0.2 * (np.arange(d) % rng.integers(2, 9, size=(n, 1))),
    "geometric": lambda rng, n, d: rng.choice((-1, 1), size=(n, 1)) * 2.0 ** -np.arange(d),
    "stairs": lambda rng, n, d: np.tile(2.0 ** -np.floor(np.log2(np.arange(d) + 1)), (n, 1)),
    "segments": lambda rng, n, d: np.repeat(rng.normal(size=(n, d)), 5, axis=1)[:, :d],
}


def masked_rows(kind: str, d: int) -> tuple[Array, Array]:
    """Eight rows of one kind and their mask, which keeps all of the first four; the last two contain some -inf."""
    rng = np.random.default_rng([d, *kind.encode()])
    x, keep = ROWS[kind](rng, 8, d), np.ones((8, d), bool)
    keep[4:] = rng.random((4, d)) < 0.7
    x[6:][rng.random((2, d)) < 0.3] = -np.inf
    return x, keep


def interior_points(kernel: str, theta: float | None) -> Array:
    """Rows whose support and groups are locally constant, with at least two weights."""
    x = np.random.default_rng(1).normal(size=(60, 12)) * (2.0 if kernel.startswith("prox") else 0.4)
    moves = 1e-5 * np.random.default_rng(2).normal(size=(4, *x.shape))
    structures = [structure(reference.argmax(kernel, x + move, None, theta)) for move in moves]
    stable = np.all([s == structures[0] for s in structures], axis=(0, 2, 3))
    x = x[stable & ((reference.argmax(kernel, x, None, theta) != 0).sum(1) >= 2)]
    assert len(x) >= 5
    return x


def structure(y: Array) -> Array:
    """For every pair of positions, which magnitude is larger; zero counts as one more position."""
    magnitude = np.abs(np.c_[y, np.zeros(len(y))])
    return np.sign(magnitude[:, :, None] - magnitude[:, None, :])


def rounding_scale(kernel: str, x: Array, theta: float | None) -> float:
    """The scale of rounding errors: prox kernels keep the scale of the scores, pooling adds that of the penalty."""
    scores = np.abs(x[np.isfinite(x)]).max(initial=0.0) if kernel.startswith("prox") else 0.0
    penalty = {"fusedmax": 4, "oscarmax": x.shape[-1], "prox_oscar": x.shape[-1]}.get(kernel, 1)
    return max(1.0, scores, penalty * (theta or 0.0))


def worst(errors: Array, bounds: Array, kinds: list[str]) -> set[str]:
    """The kinds with an error above its row's bound, of eight rows per kind."""
    return {kinds[row // 8] for row in np.flatnonzero(~(errors.max(axis=1) <= bounds))}


@pytest.mark.parametrize(("kernel", "theta"), CASES)
def test_tensors_agree_with_the_reference(kernel: str, theta: float | None) -> None:
    for d in SIZES:
        rows = [masked_rows(kind, d) for kind in ROWS]
        scales = np.repeat([rounding_scale(kernel, x, theta) for x, _ in rows], 8)
        x, keep = (np.concatenate(parts) for parts in zip(*rows, strict=True))
        for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 2e-6)):
            scores = torch.tensor(x, dtype=dtype)
            y = tensors.argmax(kernel, scores, torch.tensor(keep), theta)
            expected = reference.argmax(kernel, scores.double().numpy(), keep, theta)
            assert y.dtype == dtype
            assert worst(np.abs(y.double().numpy() - expected), tolerance * scales, [*ROWS]) == set(), d
            assert (y.numpy()[~keep | (x == -np.inf)] == 0).all()


@pytest.mark.parametrize(("kernel", "theta"), CASES)
def test_jacobian_products_agree_with_the_reference(kernel: str, theta: float | None) -> None:
    kinds = ["normal", "flat", "constant", "ties", "segments"]
    for d in SIZES:
        x, keep = (
            np.concatenate(parts) for parts in zip(*(masked_rows(kind, d) for kind in kinds), strict=True)
        )
        keep &= x != -np.inf
        y, v = reference.argmax(kernel, x, keep, theta), np.random.default_rng(d).normal(size=x.shape)
        for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
            weights, direction = torch.tensor(y, dtype=dtype), torch.tensor(v, dtype=dtype)
            product = tensors.jacobian_product(kernel, weights, direction, torch.tensor(keep), theta)
            expected = reference.jacobian_product(kernel, weights.double().numpy(), v, keep, theta)
            bounds = tolerance * np.repeat(
                np.abs(expected).reshape(len(kinds), -1).max(axis=1).clip(min=1.0), 8
            )
            assert worst(np.abs(product.double().numpy() - expected), bounds, kinds) == set(), d


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("kernel", "theta"), [case for case in CASES if case[0] not in ("softmax", "sqpnormmax", "entmax")]
)
def test_supports_and_groups_are_those_of_the_reference(
    kernel: str, theta: float | None, dtype: torch.dtype
) -> None:
    x = interior_points(kernel, theta)
    y = tensors.argmax(kernel, torch.tensor(x, dtype=dtype), None, theta)
    np.testing.assert_array_equal(structure(y.numpy()), structure(reference.argmax(kernel, x, None, theta)))


@pytest.mark.pairs
@pytest.mark.parametrize("kind", ["constant", "ties", "multiples", "segments"])
@pytest.mark.parametrize(("kernel", "theta"), CASES)
def test_equal_neighbours_stay_equal_to_the_last_bit(kernel: str, theta: float | None, kind: str) -> None:
    for d in SIZES[1:]:
        x = torch.tensor(ROWS[kind](np.random.default_rng(d), 4, d), dtype=torch.float32)
        y = tensors.argmax(kernel, x, None, theta)
        assert (y.diff(dim=-1) == 0)[x.diff(dim=-1) == 0].all()


@pytest.mark.parametrize(("kernel", "theta"), CASES)
def test_jacobian_products_are_derivatives(kernel: str, theta: float | None) -> None:
    x = interior_points(kernel, theta)
    v, step = np.random.default_rng(3).normal(size=x.shape), 1e-6
    forward, backward = (reference.argmax(kernel, x + sign * step * v, None, theta) for sign in (1, -1))
    product = reference.jacobian_product(kernel, reference.argmax(kernel, x, None, theta), v, None, theta)
    np.testing.assert_allclose(
        product, (forward - backward) / (2 * step), rtol=0, atol=1e-6 * max(1, np.abs(product).max())
    )


@pytest.mark.parametrize("lam", [0.1, 3.0])
@pytest.mark.parametrize("large", [1e6, 1e16, 1e37])
def test_prox_tv1d_keeps_small_scores_beside_large_ones(large: float, lam: float) -> None:
    rng = np.random.default_rng(4)
    x = np.where(rng.random((40, 12)) < 0.3, rng.choice((-1, 1), (40, 12)), 0.0) * large
    x = np.where(x == 0, rng.normal(size=x.shape), x)
    for dtype, accuracy in ((torch.float64, 1e-14), (torch.float32, 1e-5)):
        scores = torch.tensor(x, dtype=dtype)
        z = tensors.argmax("prox_tv1d", scores, None, lam)
        expected = reference.argmax("prox_tv1d", scores.double().numpy(), None, lam)
        np.testing.assert_allclose(z.double(), expected, rtol=accuracy, atol=accuracy * lam)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("kernel", "theta"), LEARNABLE)
def test_theta_gradients_are_derivatives(kernel: str, theta: float, masked: bool) -> None:
    x = interior_points(kernel, theta)
    keep = np.random.default_rng(4).random(x.shape) < (0.8 if masked else 1.1)
    y, *near = (reference.argmax(kernel, x, keep, theta + step) for step in (0, 1e-6, -1e-6))
    weights, kept = torch.tensor(y), torch.tensor(keep)
    gradient = tensors.theta_gradient(kernel, weights, kept, theta)
    change = -tensors.jacobian_product(kernel, weights, gradient, kept, theta).numpy()
    # A mask changes rows: those that are then at a kink are not differentiable.
    error = np.abs(change - (near[0] - near[1]) / 2e-6).max(1)
    assert np.abs(change).max() > 0.01
    assert (error < 1e-6 * np.abs(change).max()).mean() >= (0.8 if masked else 1.0)


def test_kernels_without_strength_have_a_zero_theta_gradient() -> None:
    y = torch.tensor([[0.5, 0.5, 0.0]])
    assert not tensors.theta_gradient("softmax", y).any()
    assert not tensors.theta_gradient("sparsemax", y).any()


@pytest.mark.parametrize(("kernel", "theta"), SMOOTH)
def test_smooth_products_are_twice_differentiable_also_at_zeros(kernel: str, theta: float | None) -> None:
    y = torch.tensor([[0.5, 0.3, 0.2, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    v = torch.tensor(np.random.default_rng(5).normal(size=(3, 4)))
    p = torch.full((3, 1), theta or 1.5, dtype=torch.float64)
    positive = y > 0

    def product(weights: torch.Tensor, v: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        return tensors.jacobian_product(kernel, torch.where(positive, weights, 0), v, None, p)

    inputs = [t.clone().requires_grad_() for t in (y, v, p)]
    assert torch.autograd.gradcheck(product, inputs)
    assert torch.autograd.gradgradcheck(product, inputs)
    y.requires_grad_()
    (first,) = torch.autograd.grad(
        tensors.jacobian_product(kernel, y, v, None, p).square().sum(), y, create_graph=True
    )
    (second,) = torch.autograd.grad(first.square().sum(), y)
    assert first.isfinite().all()
    assert second.isfinite().all()


@pytest.mark.parametrize("kernel", [kernel for kernel, thetas in THETAS.items() if thetas != (None,)])
def test_theta_per_row_is_theta_row_by_row(kernel: str) -> None:
    x, keep = (torch.tensor(a) for a in masked_rows("normal", 17))
    thetas = torch.tensor([THETAS[kernel][i % len(THETAS[kernel])] for i in range(len(x))]).double()
    y = tensors.argmax(kernel, x, keep, thetas[:, None])
    for i, t in enumerate(thetas.tolist()):
        torch.testing.assert_close(y[i], tensors.argmax(kernel, x[i], keep[i], t), rtol=0, atol=1e-14)
    np.testing.assert_allclose(
        y, reference.argmax(kernel, x.numpy(), keep.numpy(), thetas.numpy()), atol=1e-12
    )


@pytest.mark.parametrize(("kernel", "theta"), CASES)
def test_spoiled_and_empty_rows(kernel: str, theta: float | None) -> None:
    nan, inf = np.nan, np.inf
    x = np.array([[nan, 1, 2], [inf, 1, -inf], [1, nan, 0], [-inf, -inf, -inf], [1, 2, 3], [-inf, 7, nan]])
    keep = np.array([[1, 1, 0], [1, 0, 1], [1, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0]], bool)
    expected = reference.argmax(kernel, x, keep, theta)
    assert np.isnan(expected[:2][keep[:2]]).all()
    assert (expected[~keep] == 0).all()
    assert (expected[[3, 4]] == 0).all()
    np.testing.assert_allclose(
        tensors.argmax(kernel, torch.tensor(x), torch.tensor(keep), theta), expected, atol=1e-15
    )
    product = reference.jacobian_product(kernel, expected, np.ones_like(x), keep, theta)
    assert np.isnan(product[:2][keep[:2]]).all()
    weights, v = torch.tensor(expected), torch.ones(x.shape, dtype=torch.float64)
    batched = tensors.jacobian_product(kernel, weights, v, torch.tensor(keep), theta)
    np.testing.assert_allclose(batched, product, atol=1e-15)


@pytest.mark.pairs
@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0), (2, 0, 3)])
@pytest.mark.parametrize(("kernel", "theta"), CASES)
def test_nothing_in_nothing_out(kernel: str, theta: float | None, shape: tuple[int, ...]) -> None:
    x = torch.ones(shape)
    assert tensors.argmax(kernel, x, None, theta).shape == shape
    assert tensors.jacobian_product(kernel, x, x, None, theta).shape == shape
    assert tensors.theta_gradient(kernel, x, None, theta).shape == shape
    if len(shape) == 2:
        assert reference.argmax(kernel, x.numpy(), None, theta).shape == shape
        assert reference.jacobian_product(kernel, x.numpy(), x.numpy(), None, theta).shape == shape


def everything(kernel: str, x: torch.Tensor, keep: torch.Tensor, theta: float | None) -> torch.Tensor:
    y = tensors.argmax(kernel, x, keep, theta)
    return (
        y
        + tensors.jacobian_product(kernel, y, x, keep, theta)
        + tensors.theta_gradient(kernel, y, keep, theta)
    )


@pytest.mark.parametrize(("kernel", "theta"), CASES)
def test_shapes_are_known_without_values(kernel: str, theta: float | None) -> None:
    x = torch.empty(3, 2, 17, device="meta")
    assert everything(kernel, x, torch.ones(17, dtype=torch.bool, device="meta"), theta).shape == x.shape


@pytest.mark.parametrize(("kernel", "theta"), CASES)
def test_vmap_maps_rows(kernel: str, theta: float | None) -> None:
    x, keep = (torch.tensor(a) for a in masked_rows("normal", 17))
    keep &= x > -torch.inf
    x = torch.where(keep, x, 0)
    mapped = torch.vmap(lambda x, keep: everything(kernel, x, keep, theta))(x, keep)
    torch.testing.assert_close(mapped, everything(kernel, x, keep, theta), rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("kernel", "backend"), [("fusedmax", "eager"), ("oscarmax", "aot_eager"), ("sqpnormmax", "eager")]
)
def test_compiles_to_one_graph(kernel: str, backend: str) -> None:
    x, keep = torch.tensor(masked_rows("normal", 5)[0][:4]), torch.ones(5, dtype=torch.bool)
    theta = THETAS[kernel][1]
    compiled = torch.compile(everything, fullgraph=True, backend=backend)
    torch.testing.assert_close(
        compiled(kernel, x, keep, theta), everything(kernel, x, keep, theta), rtol=0, atol=1e-13
    )


WEIGHTS: dict[str, Callable[[int], Array]] = {
    "oscar": lambda d: 0.02 * np.arange(d - 1, -1, -1),
    "lasso": lambda d: np.full(d, 0.3),
    "none": np.zeros,
    "largest": lambda d: np.r_[np.ones(min(d, 1)), np.zeros(max(d - 1, 0))],
    "steps": lambda d: np.repeat([0.5, 0.2, 0.0], [-(-d // 3), -(-d // 3), d])[:d],
}


@pytest.mark.parametrize("weights", WEIGHTS)
def test_prox_owl_agrees_with_the_reference(weights: str) -> None:
    for kind in ("normal", "huge", "ties", "constant", "ramp"):
        for d in SIZES:
            x, w = ROWS[kind](np.random.default_rng(d), 6, d), WEIGHTS[weights](d)
            z = tensors.prox_owl(torch.tensor(x), torch.tensor(w))
            np.testing.assert_allclose(
                z, reference.prox_owl(x, w), rtol=0, atol=1e-12 * max(1, np.abs(x).max())
            )
            v = np.random.default_rng(d + 1).normal(size=x.shape)
            product = tensors.prox_owl_jacobian_product(z, torch.tensor(v), torch.tensor(w))
            np.testing.assert_allclose(
                product, reference.prox_owl_jacobian_product(z.numpy(), v, w), atol=1e-12
            )


@pytest.mark.parametrize("weights", WEIGHTS)
def test_prox_owl_products_are_derivatives(weights: str) -> None:
    rng, d, step = np.random.default_rng(8), 9, 1e-6
    x, w = rng.normal(size=(30, d)), WEIGHTS[weights](d)
    v = rng.normal(size=x.shape)
    z = torch.tensor(reference.prox_owl(x, w))
    numeric = (reference.prox_owl(x + step * v, w) - reference.prox_owl(x - step * v, w)) / (2 * step)
    product = tensors.prox_owl_jacobian_product(z, torch.tensor(v), torch.tensor(w))
    np.testing.assert_allclose(product, numeric, atol=1e-7)


def test_a_row_that_is_not_finite_has_no_prox_owl() -> None:
    x, w = np.array([[np.inf, 1.0], [np.nan, 1.0], [2.0, 1.0]]), np.array([0.5, 0.0])
    assert np.isnan(reference.prox_owl(x, w)).all(1).tolist() == [True, True, False]
    np.testing.assert_array_equal(
        tensors.prox_owl(torch.tensor(x), torch.tensor(w)), reference.prox_owl(x, w)
    )


@pytest.mark.parametrize("p", [1.001, 1.01, 1.3, 1.5, 1.99, 2.0])
def test_sqpnormmax_satisfies_its_optimality_condition(p: float) -> None:
    x = 0.3 * np.random.default_rng(9).normal(size=(20, 64))
    y = reference.argmax("sqpnormmax", x, None, p)
    gradient = y ** (p - 1) * (y**p).sum(1, keepdims=True) ** ((2 - p) / p)
    slack = np.where(
        y > 1e-200, x - gradient, np.nan
    )  # equals tau on the support; smaller weights lose digits
    assert (np.nanmax(slack, 1) - np.nanmin(slack, 1)).max() < 1e-13
    np.testing.assert_allclose(y.sum(1), 1, atol=1e-14)


def test_sqpnormmax_with_p_two_is_sparsemax() -> None:
    x = torch.tensor(ROWS["normal"](np.random.default_rng(10), 20, 64))
    y = tensors.argmax("sparsemax", x)
    torch.testing.assert_close(tensors.argmax("sqpnormmax", x, None, 2.0), y, rtol=0, atol=1e-15)
    v = torch.tensor(np.random.default_rng(11).normal(size=x.shape))
    product = tensors.jacobian_product("sqpnormmax", y, v, None, 2.0)
    torch.testing.assert_close(product, tensors.jacobian_product("sparsemax", y, v), rtol=0, atol=1e-14)
