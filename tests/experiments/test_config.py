"""Configurations: the paper's appendix exactly, and fields that depend on the mapping."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regmax.experiments import config
from regmax.experiments.config import EntailmentConfig, Seq2SeqConfig, make
from regmax.experiments.errors import ExperimentError
from regmax.experiments.overrides import parse
from regmax.experiments.training.schedule import rate


@pytest.mark.parametrize("task", ["translation", "summarization"])
def test_the_paper_configuration_is_the_appendix(task: str) -> None:
    made = make(task, "paper", {})
    assert isinstance(made, Seq2SeqConfig)
    assert (made.words, made.hidden, made.bidirectional, made.dropout) == (500, 500, False, 0.3)
    assert (made.epochs, made.batch, made.optimizer, made.rate, made.halve_after) == (13, 64, "sgd", 1.0, 8)
    assert (made.init, made.clip, made.largest_vocabulary, made.lower) == (0.1, 5.0, 50_000, True)
    assert (made.longest, made.longest_test, made.gamma, made.anneal_from) == (50, 100, 1.0, 0.0)
    rates = [rate(made, epoch * 10, 10) for epoch in range(13)]
    assert rates == [1.0] * 8 + [0.5**i for i in range(1, 6)]


def test_the_paper_configuration_of_entailment_is_the_appendix() -> None:
    made = make("entailment", "paper", {})
    assert isinstance(made, EntailmentConfig)
    assert (made.epochs, made.optimizer, made.rate, made.dropout, made.words) == (200, "adam", 3e-4, 0.1, 300)
    assert made.parses


@pytest.mark.parametrize(("mapping", "lam"), [("fusedmax", 0.1), ("oscarmax", 0.01), ("softmax", 0.0)])
def test_lam_is_the_papers_for_each_mapping(mapping: str, lam: float) -> None:
    assert make("translation", "paper", {"mapping": mapping}).lam == lam
    assert make("translation", "paper", {"mapping": mapping, "lam": 0.3}).lam == 0.3


@pytest.mark.parametrize(
    ("changes", "strengths"),
    [
        ({}, (1.0, 0.4, 0.7)),
        ({"lam": 3.0}, (3.0, 0.4, 0.7)),
        ({"mapping": "fusedmax,lam=3"}, (3.0, 0.4, 0.7)),
        ({"lam": 0.1, "grow_end": 0.0}, (0.1, 0.0, 0.0)),
        ({"grow_end": 0.0}, (0.1, 0.0, 0.0)),
        ({"grow_end": 0.3}, (1.0, 0.0, 0.3)),
        ({"grow_begin": 0.2, "grow_end": 0.5}, (1.0, 0.2, 0.5)),
        ({"mapping": "oscarmax"}, (0.01, 0.0, 0.0)),
        ({"mapping": "softmax"}, (0.0, 0.0, 0.0)),
    ],
)
def test_fusedmax_grows_to_the_knee_of_the_frontier(
    changes: dict[str, object], strengths: tuple[float, float, float]
) -> None:
    made = make("translation", "small", {"mapping": "fusedmax", **changes})
    assert (made.lam, made.grow_begin, made.grow_end) == strengths


@pytest.mark.parametrize(
    ("task", "preset", "growth"),
    [
        ("translation", "paper", (0.0, 0.0)),
        ("summarization", "paper", (0.0, 0.0)),
        ("entailment", "paper", (0.0, 0.0)),
        ("entailment", "small", (0.0, 0.0)),
        ("summarization", "small", (0.2, 0.5)),
    ],
)
def test_elsewhere_lam_is_the_papers(task: str, preset: str, growth: tuple[float, float]) -> None:
    made = make(task, preset, {"mapping": "fusedmax"})
    assert (made.lam, made.grow_begin, made.grow_end) == (0.1, *growth)


def test_a_configuration_from_before_the_growth_of_lam_does_not_grow(tmp_path: Path) -> None:
    fields = json.loads(config.dumps(make("translation", "small", {"mapping": "fusedmax", "lam": 0.1})))
    older = {name: value for name, value in fields.items() if name not in config.GROWTH}
    (tmp_path / "config.json").write_text(json.dumps(older))
    made = config.load(tmp_path / "config.json")
    assert (made.lam, made.grow_begin, made.grow_end) == (0.1, 0.0, 0.0)


def test_the_small_configuration_anneals_sparse_mappings() -> None:
    assert make("translation", "small", {"mapping": "sparsemax"}).anneal_from == 4.0
    assert make("translation", "small", {"mapping": "softmax"}).anneal_from == 0.0
    assert make("translation", "small", {"mapping": "softmax", "anneal_from": 2.0}).anneal_from == 2.0


def test_every_field_can_be_given_on_the_command_line() -> None:
    made = parse("translation", ["--config", "paper", "--rate", "0.5", "--no-lower", "--train", "a", "b", "--dev", "c",
                                 "d", "--test", "e", "f", "g"])  # fmt: skip
    assert (made.preset, made.rate, made.lower, made.test) == ("paper", 0.5, False, ("e", "f", "g"))


def test_a_configuration_is_saved_and_loaded(tmp_path: Path) -> None:
    made = make(
        "entailment", "small", {"mapping": "oscarmax", "train": ("a",), "dev": ("b",), "test": ("c",)}
    )
    (tmp_path / "config.json").write_text(config.dumps(made))
    assert config.load(tmp_path / "config.json") == made


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "[" * 100_000, '{"task": "translation", "preset": "small", "size": 3}']
)
def test_a_file_that_is_no_configuration_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ExperimentError, match=r"config.json is not the configuration of a run"):
        config.load(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "`epochs` must be positive. Got 0"),
        ({"gamma": -1.0}, "`gamma` must be positive. Got -1.0"),
        ({"lam": -3.0}, "`lam` must be non-negative. Got -3.0"),
        ({"lam": float("nan")}, "`lam` must be non-negative. Got nan"),
        ({"dropout": 1.0}, r"`dropout` must be in \[0, 1\). Got 1.0"),
        ({"epochs": "five"}, "`epochs` must be positive. Got 'five'"),
        ({"optimizer": "lion"}, "`optimizer` must be adam or sgd. Got 'lion'"),
        ({"anneal_begin": 0.9}, "must be fractions of the steps, in this order"),
        ({"grow_begin": 0.2, "grow_end": 0.1, "mapping": "fusedmax"}, "`grow_begin` and `grow_end` must be"),
        ({"grow_end": 0.1, "mapping": "sparsemax"}, "needs a mapping with a lam: fusedmax, oscarmax. Got sp"),
        ({"train": ("a", "b")}, "must be given together"),
    ],
)
def test_bad_fields_raise(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ExperimentError, match=message):
        make("translation", "small", changes)


def test_the_rate_warms_up_and_decays() -> None:
    made = make("translation", "small", {"epochs": 10, "rate": 1.0, "warm_up": 0.1, "decay_from": 0.5})
    rates = [rate(made, step, 10) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == rates[50] == 1.0
    assert rates[75] == pytest.approx(0.5)
    assert rates[99] == pytest.approx(0.02)
