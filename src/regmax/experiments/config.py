"""What a run is made of: one frozen dataclass per task, and two presets of each.

`paper` is Appendix C to the letter. `small` is sized for two CPU cores; its sizes trained well on multi30k, SNLI and
Google's sentence compression with softmax, and are not the outcome of a search for any mapping.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regmax.experiments.errors import ExperimentError
from regmax.mappings import MAPPINGS, named, parse

Files = tuple[str, ...]

# Section 3 of the paper: gamma = 1, lam = .1 for fusedmax, p = 1.5; oscarmax counts every pair of
# words, so that its lam is smaller.
LAM = {name: row.default for name, row in MAPPINGS.items() if row.strength == "lam"}
# Where annealing starts. At uniform weights the Jacobian of a sparse mapping is d times that of softmax: attention
# collapses onto a wrong word before the encoder has learned anything, and gets no gradient back.
DENSE_GAMMA = 4.0


@dataclass(frozen=True)
class Config:
    """What all tasks share."""

    task: str
    preset: str
    # data: files, or nothing for the generated corpus
    train: Files = ()
    dev: Files = ()
    test: Files = ()
    generated: int = 4000  # training pairs of the generated corpus
    most_pairs: int = 0  # use a random part of the training set; 0: all of it
    # attention
    mapping: str = "softmax"
    gamma: float = 1.0
    lam: float = -1.0  # negative: the mapping's own, `LAM`
    p: float = 1.5
    anneal_from: float = 0.0  # gamma at the start of training; 0: gamma throughout
    anneal_begin: float = 0.2  # the share of the steps after which gamma begins to fall
    anneal_end: float = 0.7  # ... and where it has reached its end
    # training
    seed: int = 0
    epochs: int = 5
    batch: int = 64
    optimizer: str = "adam"
    rate: float = 1e-3
    warm_up: float = 0.0  # the share of the steps over which the rate rises
    decay_from: float = 1.0  # the share of the steps after which the rate falls linearly to zero
    halve_after: int = 0  # halve the rate after each epoch from this one on; 0: never
    clip: float = 5.0  # the largest norm of the gradient
    weight_decay: float = 0.0
    dropout: float = 0.3
    patience: int = 0  # stop after this many epochs without a better dev score; 0: never
    save_every: int = 200  # steps
    device: str = "auto"
    tensorboard: bool = True

    def __post_init__(self) -> None:
        try:
            named(self.mapping)
        except ValueError as error:
            raise ExperimentError(str(error)) from None
        for name in ("epochs", "batch", "generated", "gamma", "rate", "clip", "save_every"):
            if not getattr(self, name) > 0:
                raise ExperimentError(f"`{name}` must be positive. Got {getattr(self, name)}.")
        if self.optimizer not in ("adam", "sgd"):
            raise ExperimentError(f"`optimizer` must be adam or sgd. Got {self.optimizer!r}.")
        if not 0 <= self.anneal_begin <= self.anneal_end <= 1:
            raise ExperimentError(
                "`anneal_begin` and `anneal_end` must be shares of the steps, in this order."
            )
        given = [bool(files) for files in (self.train, self.dev, self.test)]
        if any(given) and not all(given):
            raise ExperimentError(
                "`train`, `dev` and `test` must be given together, or none for generated data."
            )


@dataclass(frozen=True)
class Seq2SeqConfig(Config):
    """Translation and summarization: an LSTM encoder and decoder with global attention and input feeding."""

    masks: str = ""  # a file of keep-masks of the test set, for the attention's precision and recall
    lower: bool = True
    largest_vocabulary: int = 50_000
    least_count: int = 1
    longest: int = 50  # words, in training
    longest_test: int = 100
    words: int = 500  # dimensions of the word vectors
    hidden: int = 500
    layers: int = 2
    bidirectional: bool = False
    shared: bool = False  # one vocabulary and one embedding for both sides and the output
    scaled: bool = False  # divide the scores by sqrt(hidden), so that attention starts dense
    word_values: bool = False  # attention also sees the word vectors, not the encoder's states alone
    frequent: int = 0  # output in two levels, with this many words in the first; 0: in one
    init: float = 0.1  # uniform initial weights within this; 0: torch's own
    per_sentence: bool = True  # divide the loss by the sentences of a batch rather than by their words
    beam: int = 5
    copy_unknown: bool = False  # write the source word that attention saw most, where the model writes <unk>
    length_penalty: float = 0.0  # rank by log p / length ** this
    decode_dev: bool = False  # BLEU or ROUGE of greedy decoding after each epoch, too
    truncate: int = 75  # bytes of a summary


@dataclass(frozen=True)
class EntailmentConfig(Config):
    """Two GRUs, and attention of the last state of the hypothesis over the premise."""

    glove: str = ""  # fixed word vectors in GloVe's text format; without: learned ones
    parses: bool = False  # take the tokens from SNLI's parses
    words: int = 300  # dimensions of learned word vectors
    hidden: int = 150
    balance: bool = False  # weigh labels by their inverse frequency


_PAPER_SEQ2SEQ: dict[str, Any] = {"epochs": 13, "optimizer": "sgd", "rate": 1.0, "halve_after": 8}
_SMALL_SEQ2SEQ: dict[str, Any] = {
    "epochs": 5,
    "dropout": 0.2,
    "anneal_from": DENSE_GAMMA,
    "rate": 2e-3,
    "warm_up": 0.05,
    "decay_from": 0.4,
    "clip": 1.0,
    "words": 256,
    "hidden": 256,
    "layers": 1,
    "bidirectional": True,
    "scaled": True,
    "frequent": 1000,
    "init": 0.0,
    "per_sentence": False,
    "length_penalty": 1.0,
    "decode_dev": True,
}
_SMALL_SUMMARIZATION: dict[str, Any] = {
    **_SMALL_SEQ2SEQ,
    "epochs": 3,
    "most_pairs": 40_000,
    "longest": 40,
    "largest_vocabulary": 20_000,
    "shared": True,
    "word_values": True,
    "copy_unknown": True,
}
# The appendix names no size of the states.
_PAPER_ENTAILMENT: dict[str, Any] = {"epochs": 200, "rate": 3e-4, "dropout": 0.1, "parses": True}
_SMALL_ENTAILMENT: dict[str, Any] = {
    "anneal_from": DENSE_GAMMA,
    "epochs": 8,
    "decay_from": 0.4,
    "dropout": 0.25,
    "words": 50,
    "balance": True,
}
PRESETS: dict[tuple[str, str], Config] = {
    ("translation", "paper"): Seq2SeqConfig("translation", "paper", **_PAPER_SEQ2SEQ),
    ("translation", "small"): Seq2SeqConfig("translation", "small", **_SMALL_SEQ2SEQ, least_count=2),
    ("entailment", "paper"): EntailmentConfig("entailment", "paper", **_PAPER_ENTAILMENT),
    ("entailment", "small"): EntailmentConfig("entailment", "small", **_SMALL_ENTAILMENT),
    ("summarization", "paper"): Seq2SeqConfig("summarization", "paper", **_PAPER_SEQ2SEQ),
    ("summarization", "small"): Seq2SeqConfig("summarization", "small", **_SMALL_SUMMARIZATION),
}
TASKS = tuple(dict.fromkeys(task for task, _ in PRESETS))


def make(task: str, preset: str, changes: Mapping[str, Any]) -> Config:
    """A preset with some fields changed, and the defaults that depend on the mapping filled in.

    Example:
        >>> make("translation", "small", {"mapping": "fusedmax"}).lam
        0.1
    """
    changes = _fields(changes)
    config = dataclasses.replace(PRESETS[task, preset], **changes)
    filled: dict[str, Any] = {}
    if config.lam < 0:
        filled["lam"] = LAM.get(config.mapping, 0.0)
    if config.mapping == "softmax" and "anneal_from" not in changes:
        filled["anneal_from"] = 0.0  # softmax needs no help
    return dataclasses.replace(config, **filled)


def _fields(changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The changes with a mapping `fusedmax,lam=0.2` as the fields `mapping` and `lam`."""
    if "," not in changes.get("mapping", ""):
        return changes
    try:
        row, strengths = parse(changes["mapping"])
    except ValueError as error:
        raise ExperimentError(str(error)) from None
    for name in strengths:
        if not hasattr(Config, name):
            raise ExperimentError(f"`{name}` is no field of a run, which keeps {row.name} at its default.")
        if name in changes:
            raise ExperimentError(
                f"`{name}` must be given once. Got it in `mapping` and as an option of its own."
            )
    return {**changes, "mapping": row.name, **strengths}


def dumps(config: Config) -> str:
    """A configuration as JSON."""
    return json.dumps(dataclasses.asdict(config), indent=1) + "\n"


def load(path: Path) -> Config:
    """Read a file of what `dumps` made."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        fields = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
        return type(PRESETS[fields["task"], fields["preset"]])(**fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ExperimentError(f"{path} is not the configuration of a run: {error}.") from error
