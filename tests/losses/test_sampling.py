"""Samples: frequencies, exact zeros, reproducible draws, gradients of the perturbed mappings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fronts import FRONTS, Front
from table import DEFAULTS, Entry

import regmax

DRAWS = 1_000_000
X = np.array([0.9, 0.2, -0.4, 1.0, 0.85, -np.inf])
EACH = pytest.mark.parametrize("entry", DEFAULTS, ids=str)
BOTH = pytest.mark.parametrize("front", FRONTS.values(), ids=list(FRONTS))


def generator(front: Front, seed: int = 0) -> Any:
    return torch.Generator().manual_seed(seed) if front.name == "torch" else np.random.default_rng(seed)


def draw(front: Front, omega: Any, x: np.ndarray, seed: int = 0, **options: Any) -> np.ndarray:
    return front(lambda x, **o: regmax.sample(omega, x, **o), x, generator=generator(front, seed), **options)


@EACH
@BOTH
def test_frequencies_are_the_weights_and_zeros_are_never_drawn(entry: Entry, front: Front) -> None:
    y = entry(X, gamma=0.8)
    counts = np.bincount(draw(front, entry.omega, X, gamma=0.8, num_samples=DRAWS), minlength=len(X))
    assert counts.sum() == DRAWS
    assert not counts[y == 0].any()
    errors = np.sqrt(y * (1 - y) / DRAWS)
    assert (abs(counts / DRAWS - y) <= 3 * errors).all()


@BOTH
def test_a_row_of_many_zeros_is_drawn_on_its_support_only(front: Front) -> None:
    x = np.full((200, 5000), -1.0)
    x[:, 0] = x[:, -1] = -5  # zeros at both ends
    places = np.random.default_rng(0).integers(1, 4999, size=(200, 2))
    np.put_along_axis(x, places, 1.0, 1)
    drawn = draw(front, "sparsemax", x, num_samples=50)
    assert drawn.shape == (200, 50)
    assert (drawn[:, :, None] == places[:, None, :]).any(-1).all()


@BOTH
@pytest.mark.parametrize("u", [0.0, 1.0])
def test_the_extremes_of_the_uniform_numbers_draw_no_zero(
    front: Front, u: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.array([[-3.0, 1.0, 0.9, -3.0]])
    monkeypatch.setattr(torch, "rand", lambda shape, **_: torch.full(shape, u, dtype=torch.float64))
    if front.name == "numpy":

        class Extreme(np.random.Generator):
            def random(self, size: Any) -> np.ndarray:
                return np.full(size, u)

        found = regmax.sample("sparsemax", x, generator=Extreme(np.random.PCG64(0)))
    else:
        found = regmax.sample("sparsemax", torch.tensor(x))
    assert int(found[0]) == (1 if u == 0 else 2)


@BOTH
def test_shapes_dims_and_masks(front: Front) -> None:
    x = np.random.default_rng(0).normal(size=(3, 4, 5))
    mask = np.zeros((4, 1), bool)
    mask[2] = True
    one = draw(front, "softmax", x, dim=1, mask=mask)
    assert one.shape == (3, 5)
    assert np.issubdtype(one.dtype, np.integer)
    assert (one == 2).all()
    assert draw(front, "softmax", x, dim=1, num_samples=7).shape == (3, 7, 5)
    assert draw(front, "softmax", x[0, 0]).shape == ()


@BOTH
def test_the_generator_decides_the_draws(front: Front) -> None:
    x = np.random.default_rng(0).normal(size=(20, 8))
    assert (draw(front, "softmax", x, seed=1) == draw(front, "softmax", x, seed=1)).all()
    assert (draw(front, "softmax", x, seed=1) != draw(front, "softmax", x, seed=2)).any()
    noise = regmax.perturbed_argmax("softmax", front.array(x), generator=generator(front, 1))
    again = regmax.perturbed_argmax("softmax", front.array(x), generator=generator(front, 1))
    assert bool((noise == again).all())


def test_any_function_can_be_sampled() -> None:
    def uniform(scores: Any, dim: int, mask: Any = None) -> Any:
        return torch.full_like(scores, 1 / scores.shape[dim])

    drawn = regmax.sample(uniform, torch.zeros(4), gamma=2.0, num_samples=100)
    assert set(drawn.tolist()) == {0, 1, 2, 3}


def test_half_precision_is_sampled_and_perturbed() -> None:
    x = torch.tensor([1.0, 0.9, -3.0], dtype=torch.bfloat16)
    assert int(regmax.sample("sparsemax", x, num_samples=1000).max()) == 1
    assert regmax.perturbed_argmax("sparsemax", x).dtype == torch.bfloat16


@EACH
@BOTH
@pytest.mark.parametrize("noise", ["gumbel", "gaussian"])
def test_a_perturbed_sample_is_the_mapping_of_perturbed_scores(
    entry: Entry, front: Front, noise: str
) -> None:
    x = np.random.default_rng(0).normal(size=(2, 6))
    found = front(
        lambda x, **o: regmax.perturbed_argmax(entry.omega, x, **o),
        x,
        noise=noise,
        sigma=0.5,
        gamma=0.7,
        num_samples=3,
        generator=generator(front),
    )
    assert found.shape == (3, 2, 6)
    if front.name == "torch":
        empty = torch.empty(3, 2, 6, dtype=torch.float64)
        rng = generator(front)
        z = empty.normal_(generator=rng) if noise == "gaussian" else -empty.exponential_(generator=rng).log()
        z = z.numpy()
    else:
        rng = generator(front)
        z = rng.normal(size=(3, 2, 6)) if noise == "gaussian" else rng.gumbel(size=(3, 2, 6))
    np.testing.assert_allclose(found, entry(x + 0.5 * z, gamma=0.7), atol=1e-12)


@BOTH
@pytest.mark.parametrize("noise", ["gumbel", "gaussian"])
def test_the_noise_has_its_mean_and_variance(front: Front, noise: str) -> None:
    seen = []

    def spy(scores: Any, dim: int) -> Any:
        seen.append(np.asarray(scores))
        return scores

    regmax.perturbed_argmax(spy, front.array(np.zeros(200_000)), noise=noise, generator=generator(front))
    mean, variance = (np.euler_gamma, np.pi**2 / 6) if noise == "gumbel" else (0.0, 1.0)
    assert abs(seen[0].mean() - mean) < 4 * np.sqrt(variance / 200_000)
    assert abs(seen[0].var() / variance - 1) < 0.03


@BOTH
def test_hard_gumbel_samples_are_draws_from_softmax(front: Front) -> None:
    x, n = np.array([1.0, 0.3, -0.5, 0.0]), 200_000
    found = front(
        lambda x, **o: regmax.perturbed_argmax("sparsemax", x, **o),
        x,
        sigma=0.8,
        num_samples=n,
        hard=True,
        generator=generator(front),
    )
    assert set(np.unique(found)) == {0.0, 1.0}
    assert (found.sum(-1) == 1).all()
    y = regmax.softmax(x / 0.8)
    assert (abs(found.mean(0) - y) <= 3 * np.sqrt(y * (1 - y) / n)).all()


def test_hard_samples_have_the_gradient_of_soft_ones() -> None:
    x = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    v = torch.randn(4, 6, dtype=torch.float64)
    gradients = [
        torch.autograd.grad(
            regmax.perturbed_argmax(
                "sqpnormmax", x, sigma=0.3, hard=hard, generator=torch.Generator().manual_seed(0)
            ),
            x,
            v,
        )[0]
        for hard in (True, False)
    ]
    assert torch.equal(*gradients)
    assert gradients[0].abs().sum() > 0


@BOTH
def test_hard_rows_without_a_score_are_zero_and_rows_of_nan_are_nan(front: Front) -> None:
    x = np.array([[-np.inf, -np.inf], [np.nan, 0.0], [0.0, 1.0]])
    found = front(lambda x, **o: regmax.perturbed_argmax("sparsemax", x, hard=True, sigma=0.0), x)
    np.testing.assert_array_equal(found, [[0, 0], [np.nan, np.nan], [0, 1]])


# Noise, and minus the derivative of its log density: d/dx E[f(x + sigma Z)] = E[f(x + sigma Z) slope(Z)] / sigma.
NOISES = {
    "gaussian": (lambda z, rng: z.normal_(generator=rng), lambda z: z),
    "gumbel": (lambda z, rng: -z.exponential_(generator=rng).log(), lambda z: 1 - (-z).exp()),
}


@EACH
@pytest.mark.parametrize("noise", NOISES)
def test_gradients_estimate_those_of_the_expectation(entry: Entry, noise: str) -> None:
    """d/dx E[Pi(x + sigma Z)] by the score function of the noise, which needs no derivative of Pi."""
    x, sigma, n = torch.tensor([0.5, 0.1, -0.2, 0.3], dtype=torch.float64), 0.7, 200_000
    v = torch.tensor([1.0, -0.5, 0.3, 2.0], dtype=torch.float64)
    scores = x.clone().requires_grad_()
    rng = torch.Generator().manual_seed(0)
    y = regmax.perturbed_argmax(entry.omega, scores, noise=noise, sigma=sigma, num_samples=n, generator=rng)
    (pathwise,) = torch.autograd.grad((y.mean(0) * v).sum(), scores)
    draw_noise, slope = NOISES[noise]
    z = draw_noise(torch.empty(n, 4, dtype=torch.float64), torch.Generator().manual_seed(1))
    value = (entry(x + sigma * z) * v).sum(-1, keepdim=True)
    terms = (value - value.mean()) * slope(z) / sigma
    error = terms.std(0) / n**0.5
    assert bool(((pathwise - terms.mean(0)).abs() < 5 * error).all())
    assert bool((pathwise.abs() > 10 * error).any())


def test_sigma_is_learned() -> None:
    sigma = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)

    def call(x: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
        return regmax.perturbed_argmax(
            "sqpnormmax", x, sigma=sigma, generator=torch.Generator().manual_seed(0)
        )

    assert torch.autograd.gradcheck(call, (x, sigma))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: regmax.sample("sparsemax", [1.0]),
            TypeError,
            r"`sample\(omega, scores\)` needs a NumPy array",
        ),
        (
            lambda: regmax.sample("sparsemax", X, num_samples=0),
            ValueError,
            r"must be a positive integer. Got 0",
        ),
        (lambda: regmax.sample("sparsemax", X, num_samples=2.0), ValueError, r"must be a positive integer"),
        (lambda: regmax.sample("sparsemax", X, 2), ValueError, r"needs `dim` from -1 to 0. Got 2"),
        (
            lambda: regmax.sample("sparsemax", X, generator=3),
            TypeError,
            r"must be a numpy.random.Generator. Got int",
        ),
        (
            lambda: regmax.sample("sparsemax", torch.tensor(X), generator=np.random.default_rng()),
            TypeError,
            r"must be a torch.Generator. Got Generator",
        ),
        (lambda: regmax.sample("sparsemax", X * np.nan), ValueError, r"a kept, finite score in every row"),
        (
            lambda: regmax.sample("sparsemax", torch.full((2, 3), -torch.inf)),
            ValueError,
            r"a kept, finite score in every row",
        ),
        (lambda: regmax.perturbed_argmax("sparsemax", X, noise="cauchy"), ValueError, r"Got 'cauchy'"),
        (lambda: regmax.perturbed_argmax("sparsemax", X, sigma=-1.0), ValueError, r"non-negative and finite"),
        (
            lambda: regmax.perturbed_argmax("sparsemax", X, sigma=torch.tensor(1.0)),
            TypeError,
            r"sigma must be a number or of the scores' kind. Got Tensor",
        ),
    ],
)
def test_bad_arguments_raise_in_one_line(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
