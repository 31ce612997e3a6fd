"""The Fenchel-Young loss: its value by an independent solver, its laws, its derivatives and its errors."""

from __future__ import annotations

from functools import partial

import numpy as np
import oracle
import pytest
import torch
from fronts import Front
from hypothesis import given
from points import interior
from strategies import scores
from table import DEFAULTS, TABLE, Entry

import regmax

RNG = np.random.default_rng(0)
EACH = pytest.mark.parametrize("entry", TABLE, ids=str)
DEFAULT = pytest.mark.parametrize("entry", DEFAULTS, ids=str)


def loss(entry: Entry, x: np.ndarray, target: np.ndarray, **options: float) -> np.ndarray:
    return regmax.fenchel_young_loss(entry.omega, x, target, **options)


def simplex(n: int, d: int, seed: int = 1) -> np.ndarray:
    q = np.random.default_rng(seed).dirichlet(np.ones(d), size=n)
    q[::2, 0] = 0
    return q / q.sum(-1, keepdims=True)


@EACH
@pytest.mark.parametrize("gamma", [1.0, 0.4])
def test_the_value_is_that_of_the_independent_solver(entry: Entry, gamma: float) -> None:
    x, q = np.random.default_rng(5).normal(size=(5, 6)), simplex(5, 6)
    gammas = np.full(5, gamma)
    y = oracle.solve(entry.mapping, x, gammas, **entry.parameters).y
    best = oracle.objective(entry.mapping, x, y, gammas, **entry.parameters)
    at_q = oracle.objective(entry.mapping, x, q, gammas, **entry.parameters)
    np.testing.assert_allclose(loss(entry, x, q, gamma=gamma), best - at_q, atol=1e-9)


@EACH
def test_class_indices_are_one_hot_distributions(entry: Entry, front: Front) -> None:
    x, classes = RNG.normal(size=(4, 3, 5)), RNG.integers(0, 5, size=(4, 3))
    call = partial(regmax.fenchel_young_loss, entry.omega)
    by_class = front(call, x, classes)
    assert by_class.shape == (4, 3)
    np.testing.assert_allclose(front(call, x, np.eye(5)[classes]), by_class, atol=1e-14)
    moved = front(call, np.moveaxis(x, -1, 1), classes, dim=1)
    np.testing.assert_array_equal(moved, by_class)


@EACH
@given(x=scores())
def test_it_is_not_negative_and_zero_at_the_weights(entry: Entry, x: np.ndarray) -> None:
    y = entry(x)
    if not np.isfinite(y).all():
        return
    at_weights = loss(entry, x, y)
    assert (at_weights >= 0).all()
    spread = np.ptp(x, axis=-1) if x.size else 0
    assert (at_weights <= 1e-12 * (1 + spread)).all()


@EACH
def test_the_gradient_is_the_weights_minus_the_target(entry: Entry, torch_path: str) -> None:
    x = torch.tensor(RNG.normal(size=(6, 8)), requires_grad=True)
    for target in (torch.arange(6), torch.tensor(simplex(6, 8))):
        (gradient,) = torch.autograd.grad(
            regmax.fenchel_young_loss(entry.omega, x, target, gamma=0.7).sum(), x
        )
        q = target if target.is_floating_point() else torch.eye(8, dtype=x.dtype)[target]
        assert torch.equal(gradient, entry(x.detach(), gamma=0.7) - q)


def test_the_first_derivative_needs_no_jacobian_product(monkeypatch: pytest.MonkeyPatch) -> None:
    from regmax.frontends.torch import autograd, ops

    def refuse(*_: object) -> None:
        raise AssertionError("the solver was differentiated")

    monkeypatch.setattr(ops, "call_jacobian_product", refuse)
    monkeypatch.setattr(autograd, "product", refuse)
    x, lam, gamma = torch.randn(3, 5), torch.tensor(0.1), torch.tensor(0.5)
    for tensor in (x, lam, gamma):
        tensor.requires_grad_()
    regmax.fenchel_young_loss(regmax.FusedLasso(lam), x, torch.arange(3), gamma=gamma).sum().backward()
    assert all(tensor.grad is not None and tensor.grad.abs().sum() > 0 for tensor in (x, lam, gamma))


@DEFAULT
def test_first_and_second_derivatives_agree_with_finite_differences(entry: Entry, torch_path: str) -> None:
    x = torch.tensor(interior(entry, 3, 6), requires_grad=True)
    gamma = torch.tensor(1.0, dtype=x.dtype, requires_grad=True)
    theta = () if entry.row.strength is None else (torch.tensor(entry.omega.theta, dtype=x.dtype),)
    inputs = (x, gamma, *(strength.requires_grad_() for strength in theta))
    for target in (torch.tensor([0, 2, 5]), torch.tensor(simplex(3, 6))):

        def call(
            x: torch.Tensor, gamma: torch.Tensor, *theta: torch.Tensor, q: torch.Tensor = target
        ) -> torch.Tensor:
            omega = entry.omega.with_theta(theta[0]) if theta else entry.omega
            return regmax.fenchel_young_loss(omega, x, q, gamma=gamma)

        assert torch.autograd.gradcheck(call, inputs, eps=1e-5, atol=1e-6)
        assert torch.autograd.gradgradcheck(call, inputs, eps=1e-5, atol=1e-5)


def test_a_floating_target_has_a_gradient() -> None:
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    teacher = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    for mapping in ("softmax", "sqpnormmax"):

        def call(x: torch.Tensor, teacher: torch.Tensor, mapping: str = mapping) -> torch.Tensor:
            return regmax.fenchel_young_loss(mapping, x, teacher.softmax(-1), gamma=0.5)

        assert torch.autograd.gradcheck(call, (x, teacher))
        assert torch.autograd.gradgradcheck(call, (x, teacher))


@DEFAULT
def test_transforms_give_the_same_derivatives(entry: Entry) -> None:
    x, classes = torch.tensor(interior(entry, 3, 6)), torch.tensor([1, 0, 4])

    def one(row: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return regmax.fenchel_young_loss(entry.omega, row, target)

    y = entry(x)
    gradient = torch.func.vmap(torch.func.grad(one))(x, classes)
    torch.testing.assert_close(gradient, y - torch.eye(6, dtype=x.dtype)[classes], atol=1e-12, rtol=0)
    hessian = torch.func.vmap(torch.func.jacrev(torch.func.grad(one)))(x, classes)
    expected = torch.func.vmap(torch.func.jacrev(lambda row: entry(row)))(x)
    torch.testing.assert_close(hessian, expected, atol=1e-10, rtol=0)
    direction = torch.randn(x.shape, dtype=x.dtype)
    _, moved = torch.func.jvp(
        lambda x: regmax.fenchel_young_loss(entry.omega, x, classes), (x,), (direction,)
    )
    torch.testing.assert_close(moved, (gradient * direction).sum(-1), atol=1e-12, rtol=0)


@EACH
def test_a_masked_class_is_deleted(entry: Entry, front: Front) -> None:
    x, mask = RNG.normal(size=(1, 6)), np.array([[True, False, True, True, False, True]])
    call = partial(regmax.fenchel_young_loss, entry.omega)
    expected = front(call, x[mask][None], np.array([2]))
    np.testing.assert_allclose(front(call, x, np.array([3]), mask=mask), expected, atol=1e-14)
    np.testing.assert_allclose(front(call, np.where(mask, x, -np.inf), np.array([3])), expected, atol=1e-14)


@EACH
def test_a_deleted_target_has_an_infinite_loss_and_a_finite_gradient(entry: Entry, front: Front) -> None:
    x = np.array([[0.3, -np.inf, 0.2, 0.9], [-np.inf] * 4])
    q = np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]])
    call = partial(regmax.fenchel_young_loss, entry.omega)
    assert np.isposinf(front(call, x, np.array([1, 0]))).all()
    assert np.isposinf(front(call, x, q)).all()
    mask = np.array([True, True, False, True])
    assert np.isposinf(front(call, x[:1], np.array([2]), mask=mask)).all()
    for target, fixed in (([1, 0], [0, 0, 0, 0]), (q, [0.5, 0, 0, 0])):
        scores = torch.tensor(x, requires_grad=True)
        regmax.fenchel_young_loss(entry.omega, scores, torch.tensor(target)).sum().backward()
        expected = entry(torch.tensor(x)) - torch.tensor([fixed, [0] * 4])
        assert torch.equal(scores.grad, expected)


def test_nan_and_infinite_scores_give_nan(entry: Entry, front: Front) -> None:
    x = np.array([[0.3, np.nan, 0.2], [0.1, np.inf, 0.0], [0.1, 0.2, 0.3]])
    found = front(partial(regmax.fenchel_young_loss, entry.omega), x, np.array([0, 0, 0]))
    assert np.isnan(found).tolist() == [True, True, False]


def test_a_compiler_traces_the_loss_whole() -> None:
    x, classes = torch.randn(4, 6, requires_grad=True), torch.tensor([0, 1, 2, 3])

    def call(x: torch.Tensor) -> torch.Tensor:
        return regmax.fenchel_young_loss("sparsemax", x, classes)

    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), call(x))
    found, expected = (torch.autograd.grad(f(x).sum(), x)[0] for f in (compiled, call))
    torch.testing.assert_close(found, expected)


def test_softmax_has_the_cross_entropy() -> None:
    x, classes = torch.randn(50, 9), torch.randint(9, (50,))
    expected = torch.nn.functional.cross_entropy(x, classes, reduction="none")
    torch.testing.assert_close(regmax.fenchel_young_loss("softmax", x, classes), expected)


def test_a_sparse_loss_has_a_margin() -> None:
    x = np.array([2.0, 1.0, -3.0])
    assert regmax.fenchel_young_loss("sparsemax", x, 0) == 0
    assert regmax.fenchel_young_loss("sparsemax", x - [0.1, 0, 0], 0) > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(dtype: torch.dtype) -> None:
    x, classes = torch.randn(20, 7).to(dtype), torch.randint(7, (20,))
    found = regmax.fenchel_young_loss("sparsemax", x.requires_grad_(), classes)
    assert found.dtype == dtype
    expected = regmax.fenchel_young_loss("sparsemax", x.detach().float(), classes)
    assert torch.equal(found, expected.to(dtype))
    found.sum().backward()
    assert x.grad.dtype == dtype


def test_scores_far_from_zero_lose_no_digits() -> None:
    x = np.float32([[0.25, 0.5, -0.75]])
    for offset in (np.float32(1e6), np.float32(-1e6)):
        far = (x + offset).astype(np.float32)
        exact = regmax.fenchel_young_loss("sparsemax", (far - offset).astype(np.float64), np.array([0]))
        for array in (far, torch.tensor(far)):
            found = regmax.fenchel_young_loss("sparsemax", array, _zero(array))
            np.testing.assert_allclose(np.asarray(found), exact, rtol=1e-6)


def _zero(like: object) -> object:
    return torch.tensor([0]) if isinstance(like, torch.Tensor) else np.array([0])


class Tsallis(regmax.SmoothRegularizer):
    """1.5-entmax's entropy, times a learned factor."""

    def __init__(self) -> None:
        self.factor = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)

    def value(self, y: torch.Tensor) -> torch.Tensor:
        return self.factor * ((y**1.5).sum(-1) - 1) / 0.75


def test_own_regularizers_have_a_loss_and_learn_their_parameters() -> None:
    x, classes = torch.tensor(RNG.normal(size=(3, 5))), torch.tensor([0, 1, 2])
    omega = Tsallis()
    call = partial(regmax.fenchel_young_loss, omega)
    assert torch.autograd.gradcheck(lambda x: call(x, classes), x.clone().requires_grad_(), atol=1e-6)
    (gradient,) = torch.autograd.grad(call(x, classes).sum(), omega.factor)
    with torch.no_grad():
        values = []
        for factor in (1 + 1e-5, 1 - 1e-5):
            omega.factor.fill_(factor)
            values.append(call(x, classes).sum())
    torch.testing.assert_close(gradient, (values[0] - values[1]) / 2e-5, atol=1e-6, rtol=1e-6)
    found = regmax.fenchel_young_loss(omega, x.numpy(), classes.numpy())
    np.testing.assert_allclose(found, call(x, classes).detach(), atol=1e-4)


def test_the_papers_composition_has_oscars_loss() -> None:
    x, classes = RNG.normal(size=(4, 6)), np.array([0, 1, 2, 3])
    found = regmax.fenchel_young_loss(regmax.OscarComposition(0.1), x, classes)
    np.testing.assert_array_equal(found, regmax.fenchel_young_loss(regmax.Oscar(0.1), x, classes))


def test_functions_and_modules_of_regmax_are_mappings() -> None:
    x, classes = torch.randn(4, 6), torch.tensor([0, 1, 2, 3])
    expected = regmax.fenchel_young_loss("fusedmax,lam=0.2", x, classes, gamma=2.0)
    for mapping in (partial(regmax.fusedmax, lam=0.2, gamma=2.0), regmax.nn.Fusedmax(lam=0.2, gamma=2.0)):
        assert torch.equal(regmax.fenchel_young_loss(mapping, x, classes), expected)
    module = regmax.nn.Fusedmax(lam=0.2, gamma=0.5)
    assert torch.equal(regmax.fenchel_young_loss(module, x, classes, gamma=4.0), expected)


def test_python_integers_are_targets_of_one_row() -> None:
    x = np.array([1.0, 0.5])
    assert regmax.fenchel_young_loss("sparsemax", x, 1) == regmax.fenchel_young_loss(
        "sparsemax", x, np.array(1)
    )
    assert regmax.fenchel_young_loss("sparsemax", torch.tensor(x), 1) == 0.5625


def hardmax(scores: torch.Tensor, dim: int, mask: object = None) -> torch.Tensor:
    return scores


X = np.zeros((2, 3))


@pytest.mark.parametrize(
    ("omega", "x", "target", "error", "message"),
    [
        (hardmax, X, np.array([0, 1]), TypeError, r"needs a mapping whose Omega is known.*Got hardmax"),
        (3, X, np.array([0, 1]), TypeError, r"needs a regularizer.*Got int"),
        ("sparsmax", X, np.array([0, 1]), ValueError, r"did you mean sparsemax\?"),
        ("sparsemax", X, np.array([0]), ValueError, r"class index for every row, shape \(2,\). Got \(1,\)"),
        ("sparsemax", X, np.zeros(3), ValueError, r"distribution for every row, shape \(2, 3\). Got \(3,\)"),
        ("sparsemax", X, np.array([0, 3]), IndexError, r"must lie in 0 to 2. Got 3"),
        ("sparsemax", X, np.array([-100, 1]), IndexError, r"must lie in 0 to 2. Got -100"),
        ("sparsemax", X, X, ValueError, r"non-negative and sum to 1 along `dim`"),
        ("sparsemax", X, X > 0, TypeError, r"must hold integers.*Got bool"),
        ("sparsemax", X, torch.tensor([0, 1]), TypeError, r"of the scores' kind, ndarray. Got Tensor"),
        ("sparsemax", [1.0], 0, TypeError, r"needs a NumPy array, a torch tensor or a JAX array. Got list"),
        ("sparsemax", np.zeros((2, 0)), np.array([0, 0]), ValueError, r"needs at least one class"),
    ],
)
def test_bad_arguments_raise_in_one_line(
    omega: object, x: object, target: object, error: type[Exception], message: str
) -> None:
    pairs = [(x, target)]
    if isinstance(x, np.ndarray) and isinstance(target, np.ndarray):
        pairs.append((torch.tensor(x), torch.tensor(target)))
    for scores_, target_ in pairs:
        expected = message.replace("ndarray", "Tensor") if isinstance(scores_, torch.Tensor) else message
        with pytest.raises(error, match=expected) as caught:
            regmax.fenchel_young_loss(omega, scores_, target_)
        assert "\n" not in str(caught.value)
