"""Derivatives of the real kernels, in float64, at interior points."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from long_cases import represented
from points import interior
from table import DEFAULTS, TABLE, Entry
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import regmax

DOUBLE = torch.float64
LAYOUTS = {
    "rows": (lambda x: x, -1, 1.0),
    "columns": (lambda x: x.T, 0, 0.5),
    "cube": (lambda x: x.reshape(2, 1, -1), 2, 2.0),
}
# On tensor operations, whose gradients take long to check, the default strengths stand for the others, which
# `test_gradcheck_first_and_second_order` checks.
DEFAULTS_ON_TENSORS = pytest.mark.parametrize(
    ("entry", "torch_path"),
    represented(
        [(entry, path) for entry in TABLE for path in ("native", "tensors")],
        by=[*((entry, "native") for entry in TABLE), *((entry, "tensors") for entry in DEFAULTS)],
    ),
    indirect=["torch_path"],
    ids=str,
)


def tensor(x: np.ndarray) -> torch.Tensor:
    return torch.tensor(x, dtype=DOUBLE, requires_grad=True)


def direction(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed))


@pytest.mark.pairs
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradcheck_first_and_second_order(entry: Entry, torch_path: str, layout: str) -> None:
    arrange, dim, gamma = LAYOUTS[layout]
    x = tensor(interior(entry, 2, 5, gamma=gamma)).detach()

    def function(rows: torch.Tensor) -> torch.Tensor:
        return entry(arrange(rows), dim, gamma=gamma)

    assert gradcheck(function, x.requires_grad_(), check_forward_ad=True, check_batched_grad=True)
    v = direction(*function(x).shape).requires_grad_()
    # Every column for one layout; random directions for the others, which differ in the front end only.
    assert gradgradcheck(function, x, v, check_fwd_over_rev=True, fast_mode=layout != "rows")


@DEFAULTS_ON_TENSORS
def test_gradcheck_with_a_mask(entry: Entry, torch_path: str) -> None:
    """The kept scores are an interior point; the masked ones are far larger."""
    x, mask = np.full((2, 9), 50.0), np.zeros(9, dtype=bool)
    mask[[0, 2, 3, 5, 7, 8]] = True
    x[:, mask] = interior(entry, 2, 6)

    def function(rows: torch.Tensor) -> torch.Tensor:
        return entry(rows, mask=torch.tensor(mask))

    assert gradcheck(function, tensor(x), check_forward_ad=True)
    assert gradgradcheck(function, tensor(x), fast_mode=True)
    j = torch.autograd.functional.jacobian(lambda row: function(row[None])[0], tensor(x[0]))
    assert torch.all(j[~torch.tensor(mask)] == 0)
    assert torch.all(j[:, ~torch.tensor(mask)] == 0)


@DEFAULTS_ON_TENSORS
def test_gradcheck_with_minus_infinity(entry: Entry, torch_path: str) -> None:
    kept = [0, 2, 3, 5, 7, 8]

    def function(rows: torch.Tensor) -> torch.Tensor:
        return entry(rows.new_full((len(rows), 9), -torch.inf).index_copy(1, torch.tensor(kept), rows))

    assert gradcheck(function, tensor(interior(entry, 2, 6)), check_forward_ad=True)


@pytest.mark.pairs
@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_a_jacobian_five_ways(entry: Entry, torch_path: str, scale: float) -> None:
    """Closed form, reverse mode, forward mode, vJ and Jv; large gammas scale both scores and Jacobian."""
    x, d = tensor(scale * interior(entry, 1, 7)[0]), 7

    def function(row: torch.Tensor) -> torch.Tensor:
        return entry(row, gamma=scale)

    expected = torch.tensor(closed_form(entry, function(x).detach().numpy())) / scale
    tolerance = {"rtol": 1e-9, "atol": 1e-12 / scale}
    torch.testing.assert_close(torch.func.jacrev(function)(x), expected, **tolerance)
    torch.testing.assert_close(torch.func.jacfwd(function)(x), expected, **tolerance)
    v = direction(d)
    torch.testing.assert_close(torch.autograd.grad(function(x), x, v)[0], v @ expected, **tolerance)
    with forward_ad.dual_level():
        product = forward_ad.unpack_dual(function(forward_ad.make_dual(x.detach(), v))).tangent
    torch.testing.assert_close(product, expected @ v, **tolerance)
    assert torch.linalg.norm(expected) > 0.1 / scale


def closed_form(entry: Entry, y: np.ndarray) -> np.ndarray:
    """J from the paper: sparsemax's formula, group means for the fused, Proposition 1 for differentiable Omega."""
    support = y > 0
    if entry.mapping == "softmax":
        return np.diag(y) - np.outer(y, y)
    if entry.mapping == "sqpnormmax":
        return _bordered_inverse(_squared_p_norm_hessian(y[support], entry.parameters["p"]), support)
    if entry.mapping == "entmax":
        return _bordered_inverse(np.diag(y[support] ** (entry.parameters["alpha"] - 2)), support)
    simplex = np.diag(support) - np.outer(support, support) / support.sum()
    if not entry.fuses:
        return simplex
    same = y[:, None] == y[None, :]
    if entry.positional:
        run = np.cumsum(np.diff(y, prepend=np.nan) != 0)
        same = run[:, None] == run[None, :]
    return simplex @ (same / same.sum(axis=1, keepdims=True))


def _squared_p_norm_hessian(y: np.ndarray, p: float) -> np.ndarray:
    norm = np.sum(y**p) ** (1 / p)
    u = np.sqrt((2 - p) / norm ** (2 * p - 2)) * y ** (p - 1)
    return np.diag((p - 1) / norm ** (p - 2) * y ** (p - 2)) + np.outer(u, u)


def _bordered_inverse(hessian: np.ndarray, support: np.ndarray) -> np.ndarray:
    """dy for dx under H dy + dtau = dx, sum dy = 0: on the support, the paper's (I + A(B - I)) J = A solves this."""
    m = len(hessian)
    system = np.block([[hessian, np.ones((m, 1))], [np.ones((1, m)), np.zeros((1, 1))]])
    j = np.zeros((support.size, support.size))
    j[np.ix_(support, support)] = np.linalg.inv(system)[:m, :m]
    return j


@pytest.mark.pairs
@pytest.mark.parametrize("d", [63, 64, 65, 130])
@pytest.mark.parametrize("masked", [False, True])
def test_products_of_long_rows(entry: Entry, torch_path: str, d: int, masked: bool) -> None:
    """Long rows save their support as bits, short ones do not: both against the closed form."""
    rng = np.random.default_rng(d)
    x, v = tensor(0.3 * rng.normal(size=(3, d))), direction(3, d)
    mask = torch.tensor(rng.random((3, d)) < (0.7 if masked else 1.1))
    y = entry(x, mask=mask)
    (ours,) = torch.autograd.grad(y, x, v)
    for weights, row, keep, product in zip(y.detach().numpy(), v, mask, ours, strict=True):
        expected = closed_form(entry, weights[keep]) @ row[keep].numpy()
        np.testing.assert_allclose(product[keep], expected, rtol=0, atol=1e-12 / entry.beta)
        assert torch.all(product[~keep] == 0)


def test_equal_weights_have_one_gradient_wherever_they_are() -> None:
    """Scores a multiple of lam apart: pooled sums are equal up to rounding, and their weights must be exactly equal."""
    generator = torch.Generator().manual_seed(16)
    gaps = 1 + (torch.rand((1 << 13, 16), generator=generator) < 0.2).int()
    shuffled = torch.rand(gaps.shape, generator=generator).argsort(-1)
    x = (-0.1 * gaps.cumsum(-1).gather(-1, shuffled).float()).requires_grad_()
    y = regmax.oscarmax(x, lam=0.1)
    (ours,) = torch.autograd.grad(y, x, torch.randn(x.shape, generator=generator))
    y, order = y.detach().sort(dim=-1)
    ours = ours.gather(-1, order)
    together = (y[:, 1:] == y[:, :-1]) & (y[:, 1:] > 0)
    assert together.any()
    torch.testing.assert_close(ours[:, 1:][together], ours[:, :-1][together], rtol=0, atol=1e-6)


@DEFAULTS_ON_TENSORS
def test_the_gradient_of_max_is_the_argmax_and_its_hessian_the_jacobian(
    entry: Entry, torch_path: str
) -> None:
    x = tensor(2.0 * interior(entry, 3, 6))

    def maximum(rows: torch.Tensor) -> torch.Tensor:
        return regmax.regularized_max(entry.omega, rows, gamma=2.0)

    (gradient,) = torch.autograd.grad(maximum(x).sum(), x, create_graph=True)
    torch.testing.assert_close(gradient, entry(x, gamma=2.0), rtol=0, atol=1e-13)
    assert gradcheck(maximum, x, check_forward_ad=True)
    assert gradgradcheck(maximum, x, fast_mode=True)
    hessian = torch.func.hessian(lambda row: maximum(row))(x[0].detach())
    torch.testing.assert_close(hessian, torch.func.jacrev(lambda row: entry(row, gamma=2.0))(x[0].detach()))


@DEFAULTS_ON_TENSORS
def test_the_duality_gap_is_differentiable(entry: Entry, torch_path: str) -> None:
    x = tensor(interior(entry, 3, 6))
    y = torch.softmax(direction(3, 6), -1).requires_grad_()
    assert gradcheck(lambda x, y: regmax.duality_gap(entry.omega, x, y / y.sum(-1, keepdim=True)), (x, y))


@pytest.mark.parametrize("mapping", ["fusedmax", "oscarmax"])
def test_tied_scores_without_a_penalty_have_the_jacobian_of_sparsemax(torch_path: str, mapping: str) -> None:
    """With lam = 0 equal weights do not form a group: only the support counts."""
    x = tensor(np.array([[0.5, 0.5, 0.5, 0.2], [0.3, 0.3, 0.1, 0.3]]))
    v = direction(2, 4)
    (ours,) = torch.autograd.grad(getattr(regmax, mapping)(x, lam=0.0), x, v)
    (expected,) = torch.autograd.grad(regmax.sparsemax(x), x, v)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-15)
    assert expected.abs().min() > 1e-3
    strengths = torch.tensor([[0.0], [0.1]], dtype=DOUBLE)
    (mixed,) = torch.autograd.grad(getattr(regmax, mapping)(x, lam=strengths), x, v)
    torch.testing.assert_close(mixed[0], expected[0], rtol=0, atol=1e-15)
    assert mixed[1, 0] == mixed[1, 1]


@pytest.mark.parametrize("lam", [0.05, 0.3])
def test_the_composition_differentiates_what_it_computes(torch_path: str, lam: float) -> None:
    """Its Jacobian is not symmetric: forward and reverse mode must not be confused."""
    omega = regmax.OscarComposition(lam=lam)
    rng = np.random.default_rng(3)
    x = tensor(rng.normal(size=(6, 5)))

    def function(rows: torch.Tensor) -> torch.Tensor:
        return regmax.regularized_argmax(omega, rows)

    assert gradcheck(function, x, check_forward_ad=True)
    assert gradgradcheck(function, x)
    unsymmetric = [j for row in x if not torch.allclose(j := torch.func.jacrev(function)(row), j.T)]
    assert unsymmetric


def test_no_gradient_is_computed_where_none_is_wanted(entry: Entry, torch_path: str) -> None:
    x = tensor(interior(entry, 2, 6))
    with torch.no_grad():
        assert not entry(x).requires_grad
    with torch.inference_mode():
        entry(x)
    assert entry(x).requires_grad
    assert not entry(x.detach()).requires_grad


def test_an_empty_batch_has_an_empty_gradient(entry: Entry, torch_path: str) -> None:
    for shape in ((0, 5), (3, 0), (2, 0, 4)):
        x = torch.zeros(shape, requires_grad=True)
        entry(x).sum().backward()
        assert x.grad.shape == shape


def test_backward_can_run_twice(entry: Entry, torch_path: str) -> None:
    x = tensor(interior(entry, 2, 6))
    y, v = entry(x), direction(2, 6)
    first, second = (torch.autograd.grad(y, x, v, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_changing_the_result_in_place_never_gives_a_wrong_gradient(entry: Entry, torch_path: str) -> None:
    """Backward reads y: overwriting it in place must raise, unless a copy was kept."""
    x, v = tensor(interior(entry, 2, 6)), direction(2, 6)
    (expected,) = torch.autograd.grad(2.0 * entry(x), x, v)
    y = entry(x)
    y.mul_(2.0)
    try:
        (ours,) = torch.autograd.grad(y, x, v)
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            raise
    else:
        torch.testing.assert_close(ours, expected)


def test_the_table_reaches_every_kernel() -> None:
    from regmax.kernels import KERNELS

    assert {entry.mapping for entry in TABLE} == set(KERNELS) - {"prox_tv1d", "prox_oscar"}
