"""`generate` with `SparseLogitsProcessor`, on a tiny model of transformers."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from hugging import MODELS, WORDS
from table import DEFAULTS, Entry

import regmax
from regmax.integrations.transformers import SparseLogitsProcessor

SYMMETRIC = [entry for entry in DEFAULTS if not entry.positional]
IDS = torch.zeros(2, 1, dtype=torch.int64)


@pytest.mark.parametrize("entry", SYMMETRIC, ids=str)
def test_softmax_of_the_result_is_the_mapping(entry: Entry) -> None:
    scores = torch.randn(2, 50, generator=torch.Generator().manual_seed(0))
    scores[:, 7] = -torch.inf  # a word that another processor has forbidden
    found = SparseLogitsProcessor(entry.omega, gamma=0.5)(IDS, scores)
    y = entry(scores, gamma=0.5)
    torch.testing.assert_close(found.softmax(-1), y)
    assert bool((found[y == 0] == -torch.inf).all())


def test_half_precision_scores_are_mapped_in_single() -> None:
    scores = torch.randn(2, 50, generator=torch.Generator().manual_seed(0)).bfloat16()
    weights, expected = (
        SparseLogitsProcessor("sparsemax")(IDS, scores).exp(),
        regmax.sparsemax(scores.float()),
    )
    assert torch.equal(weights > 0, expected > 0)
    torch.testing.assert_close(weights, expected)


@pytest.mark.parametrize("model", ["gpt2", "llama", "t5"])
def test_generate_draws_only_words_with_weight(model: str) -> None:
    made = MODELS[model]
    network = made.build("eager")
    inputs = {name: value[:1] for name, value in made.inputs().items() if not name.startswith("decoder")}
    torch.manual_seed(0)
    processor = SparseLogitsProcessor("sparsemax", gamma=0.5)
    options: dict[str, Any] = {
        "do_sample": True,
        "max_new_tokens": 12,
        "num_return_sequences": 20,
        "top_k": 0,
    }
    # The list comes after the model's own processors: the scores that are sampled are its result.
    out = network.generate(
        **inputs, **options, logits_processor=[processor], return_dict_in_generate=True, output_scores=True
    )
    words = out.sequences[:, -len(out.scores) :]
    sizes = []
    for step, scores in enumerate(out.scores):
        finished = (words[:, :step] == network.config.eos_token_id).any(-1)
        y = scores.exp()
        torch.testing.assert_close(y.sum(-1), torch.ones(len(y)))
        assert bool((y.gather(-1, words[:, step : step + 1])[:, 0] > 0)[~finished].all())
        sizes.append((y > 0).sum(-1).float().mean())
    assert torch.stack(sizes).mean() < WORDS / 2


def test_greedy_search_is_unchanged() -> None:
    model, inputs = MODELS["gpt2"].build("eager"), MODELS["gpt2"].inputs(left=True)
    plain = model.generate(**inputs, do_sample=False, max_new_tokens=6)
    sparse = model.generate(
        **inputs, do_sample=False, max_new_tokens=6, logits_processor=[SparseLogitsProcessor("sparsemax")]
    )
    assert torch.equal(plain, sparse)


@pytest.mark.parametrize(
    "mapping",
    [
        "fusedmax",
        "fusedmax,lam=0.5",
        regmax.FusedLasso(0.1),
        regmax.fusedmax,
        partial(regmax.fusedmax, lam=0.2),
        regmax.nn.Fusedmax(),
    ],
    ids=["name", "name with strength", "regularizer", "function", "partial", "module"],
)
def test_mappings_that_depend_on_the_order_raise(mapping: Any) -> None:
    with pytest.raises(ValueError, match=r"does not depend on the order of the words. Got FusedLasso"):
        SparseLogitsProcessor(mapping)


def test_bad_arguments_raise() -> None:
    with pytest.raises(ValueError, match=r"gamma=...\)` must be positive and finite. Got 0"):
        SparseLogitsProcessor("sparsemax", gamma=0)
    with pytest.raises(ValueError, match="did you mean sparsemax"):
        SparseLogitsProcessor("sparsmax")
    with pytest.raises(ValueError, match=r"needs a finite score.*Got a row without weights"):
        SparseLogitsProcessor("sparsemax")(IDS, torch.full((2, 4), -torch.inf))
