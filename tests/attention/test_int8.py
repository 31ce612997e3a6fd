"""The 8-bit screen of attention: the same bits with and without it, and bounds that hold."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from screened import HARD, Attend, close_to_keys, compare, flat, forward, least_keys, training
from torch import Tensor

import regmax
from regmax.kernels import native

MAPPINGS = [
    "sparsemax",
    "fusedmax,lam=0.1",
    "fusedmax,lam=0.01",
    "oscarmax,lam=0.001",
    "oscarmax,lam=0.0001",
    "sqpnormmax,p=1.5",
    "sqpnormmax,p=1.3",
    "entmax,alpha=1.5",
    "entmax,alpha=1.25",
]


@pytest.fixture(autouse=True)
def _screen() -> Iterator[None]:
    native.use_int8_screen(True)
    if not (native.int8_screen() and native.instruction_set() == "avx512"):
        pytest.skip("This machine has no AVX-512 VNNI.")
    yield
    native.use_int8_screen(True)


def both(attend: Attend) -> native.ScreenCounts:
    """Check that a call gives the same bits with and without the screen; what the screen did."""
    counts, same = compare(attend)
    assert same
    return counts


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("is_causal", [False, True])
def test_outputs_and_gradients_have_the_same_bits(mapping: str, is_causal: bool) -> None:
    n = least_keys(mapping) + 76
    q, k, v = close_to_keys(n, n, 64)
    counts = both(training(q, k, v, mapping=mapping, is_causal=is_causal))
    assert counts.rows > 0
    assert counts.fallbacks < counts.rows


@pytest.mark.parametrize("e", [1, 16, 40, 128, 256])
def test_any_head_dimension_has_the_same_bits(e: int) -> None:
    counts = both(forward(*close_to_keys(300, 1000, e), mapping="sparsemax"))
    assert counts.rows > 0


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_masks_and_biases_have_the_same_bits(mapping: str) -> None:
    n = least_keys(mapping) * 4 // 3
    q, k, v = close_to_keys(200, n, 32)
    random = torch.Generator().manual_seed(1)
    padding = (torch.arange(n) < n - 150)[None, None]
    gaps = torch.rand(n, generator=random)[None, None] < 0.9
    rows = torch.rand(2, 200, n, generator=random) < 0.8
    ranges = (torch.arange(n) - torch.arange(200)[:, None] * 2).abs() < n // 2
    bias = torch.randn(2, 200, n, generator=random)
    biased = bias.masked_fill(torch.rand(bias.shape, generator=random) < 0.1, -torch.inf)
    far = bias.masked_fill(~rows, torch.finfo(torch.float32).min)
    screened = 0
    for options in (
        {"mask": padding},
        {"mask": gaps},
        {"mask": rows},
        {"mask": ranges},
        {"mask": rows, "is_causal": True},
        {"bias": bias},
        {"bias": bias[:1, :1]},
        {"bias": biased},
        {"bias": far},
        {"bias": bias * 1e6},
        {"bias": bias, "mask": gaps},
    ):
        counts = both(forward(q, k, v, mapping=mapping, **options))
        screened += counts.rows - counts.fallbacks
    assert screened > 0


@pytest.mark.parametrize("gamma", [1e-8, 0.1, 3.0, 1e4])
def test_any_gamma_and_scale_has_the_same_bits(gamma: float) -> None:
    q, k, v = close_to_keys(64, 900, 48)
    both(forward(q, k, v, mapping=regmax.nn.Sparsemax(gamma=gamma), scale=0.3))
    strengths = torch.tensor([0.01, 0.2])[:, None, None]
    both(forward(q, k, v, mapping=regmax.FusedLasso(lam=strengths)))


def test_shared_keys_have_the_same_bits() -> None:
    q, k, v = close_to_keys(300, 1000, 64, heads=4, shared=2)
    counts = both(training(q[None], k[None], v[None], mapping="fusedmax", enable_gqa=True))
    assert counts.rows > 0


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("scores", HARD)
def test_hard_scores_have_the_same_bits(
    scores: Callable[[torch.Generator, int], tuple[Tensor, Tensor]], mapping: str
) -> None:
    random = torch.Generator().manual_seed(0)
    q, k = scores(random, least_keys(mapping))
    v = torch.randn(1, k.shape[1], 32, generator=random)
    both(forward(q, k, v, mapping=mapping))
    both(forward(20 * q, k, v, mapping=mapping, is_causal=True))


@pytest.mark.parametrize("mapping", [*MAPPINGS, "entmax,alpha=1.3"])
def test_a_group_of_which_some_rows_fall_back_has_the_same_bits(mapping: str) -> None:
    # Sixteen queries of a head are one group; the rows that fall back are then mapped without the others.
    q, k, v = close_to_keys(16, least_keys(mapping), 64, heads=48, size=0.7)
    both(training(q, k, v, mapping=mapping))
    both(training(q, k, v, mapping=mapping, bias=q[..., :1] * k[:, None, :, 0]))


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    q, k, v = close_to_keys(96, 1024, 64, heads=1)
    out = regmax.attention(q, k, v, mapping="fusedmax")
    shuffled = torch.randperm(96, generator=torch.Generator().manual_seed(0))
    assert torch.equal(regmax.attention(q[:, shuffled], k, v, mapping="fusedmax"), out[:, shuffled])


def test_flat_rows_are_soon_left_to_the_float_path() -> None:
    random = torch.Generator().manual_seed(0)
    q, k = flat(random, 1024)
    counts = both(forward(q, k, torch.randn(1, 1024, 32, generator=random), mapping="sparsemax"))
    assert counts.rows <= 32
    assert counts.fallbacks == counts.rows


@pytest.mark.parametrize("size", [1.0, 100.0, 1e4])
def test_maxima_at_the_threshold_have_the_same_bits(size: float) -> None:
    # Scores on a grid, so that maxima are often at the threshold of the others, up to rounding.
    random = torch.Generator().manual_seed(0)
    k = torch.randint(-4, 5, (1, 1024, 16), generator=random) / 8
    q = torch.randint(-4, 5, (1, 640, 16), generator=random) / 8
    v = torch.randn(1, 1024, 32, generator=random)
    bias = (torch.randint(3, (1, 640, 1024), generator=random) - 1) / 1024 + size
    for mapping in ("sparsemax", "fusedmax,lam=0.0625"):
        both(forward(3 * q, k, v, mapping=mapping, scale=1.0))
        both(forward(3 * q, k, v, mapping=mapping, scale=1.0, bias=bias))


@pytest.mark.parametrize("lam", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("n", [1023, 1024, 1090])
def test_runs_of_weak_scores_have_the_same_bits(n: int, lam: float) -> None:
    # fusedmax prunes runs of scores just below the others, unless higher ones or ends enclose them: runs of all
    # lengths, at the ends of rows, words of 64 scores and panels of 48, over low scores.
    random = np.random.default_rng(n)
    scores = -3 + 0.1 * random.normal(size=(48, n))
    for row in scores:
        for edge in random.choice([0, 48, 64, 96, 128, 192, 500, 700, n], 2, replace=False):
            start, length = max(0, edge - random.integers(0, 5)), random.integers(1, 7)
            row[start : start + length] = 1 - random.uniform(2, 4) * lam + 0.02 * random.normal()
            if random.random() < 0.7:
                row[max(0, start - 1)] = 1 + 0.1 * lam * random.normal()
            if random.random() < 0.7:
                row[min(n - 1, start + length)] = 1 + 0.1 * lam * random.normal()
    k = 0.001 * torch.tensor(random.normal(size=(48, n, 16)), dtype=torch.float32)
    k[..., 0] = torch.tensor(scores)
    q = torch.zeros(48, 16, 16)
    q[..., 0] = torch.linspace(0.8, 1.2, 16)
    v = torch.tensor(random.normal(size=(48, n, 16)), dtype=torch.float32)
    counts = both(forward(q, k, v, mapping=f"fusedmax,lam={lam}", scale=1.0))
    assert counts.fallbacks < counts.rows


def test_weak_scores_without_a_neighbour_are_not_scored_again() -> None:
    q, k, v = close_to_keys(512, 2048, 64, size=1.0)
    counts = both(forward(q, k, v, mapping="fusedmax"))
    native.screen_counts(reset=True)
    unpruned = both(forward(q, k, v, mapping="fusedmax", bias=_one_deleted(2048)))
    assert counts.rescored < 0.75 * unpruned.rescored


def _one_deleted(n: int) -> Tensor:
    """A bias after which fusedmax prunes nothing."""
    bias = torch.zeros(1, 1, n)
    bias[..., n // 2] = -torch.inf
    return bias


def test_rows_that_fall_back_do_not_depend_on_threads() -> None:
    # Keys are packed by the first thread that needs them.
    q, k, v = close_to_keys(512, 1024, 64, size=0.7)
    attend = forward(q, k, v, mapping="fusedmax")
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = attend()
        torch.set_num_threads(4)
        for _ in range(5):
            assert all(torch.equal(ours, theirs) for ours, theirs in zip(attend(), expected, strict=True))
    finally:
        torch.set_num_threads(before)


def test_few_candidates_are_left() -> None:
    q, k, v = close_to_keys(512, 2048, 64)
    attend = forward(q, k, v, mapping="sparsemax")
    counts = both(attend)
    support = len(attend()[3]) / 1024
    assert counts.fallbacks == 0
    assert counts.candidates / counts.rows < support + 2
    assert counts.rescored / counts.rows < support + 2


def test_double_precision_is_never_screened() -> None:
    q, k, v = (x.double() for x in close_to_keys(64, 1024, 32))
    assert both(forward(q, k, v, mapping="sparsemax")).rows == 0


def test_the_bound_of_the_derivation_holds_exactly() -> None:
    """The inequality of docs/derivations/int8.md in exact integers, for errors of random and of one sign."""
    random = np.random.default_rng(0)
    for e in (16, 64, 256):
        for offset in (0.0, 0.4999):
            q, k = (random.integers(-99, 100, (200, e)) + offset for _ in range(2))
            q[:, 0] = k[:, 0] = 127
            # In units of 1e-4 all numbers are integers.
            exact_q, exact_k = ((x * 10**4).round().astype(object) for x in (q, k))
            whole_q, whole_k = (np.rint(x).astype(object) * 10**4 for x in (q, k))
            product = (exact_q * exact_k).sum(1) - (whole_q * whole_k).sum(1)
            norms = [(x * x).sum(1) for x in (exact_q, exact_k - whole_k, exact_q - whole_q, whole_k)]
            bound = [
                np.sqrt(float(a)) * np.sqrt(float(b)) + np.sqrt(float(c)) * np.sqrt(float(d))
                for a, b, c, d in zip(*norms, strict=True)
            ]
            assert all(abs(p) <= limit * (1 + 1e-12) for p, limit in zip(product, bound, strict=True))
