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
from regmax.experiments.fields import (
    ALPHA,
    COUNT,
    COUNT_OR_ZERO,
    NON_NEGATIVE,
    NORM,
    POSITIVE,
    PROBABILITY,
    SEED,
    SHARE,
    check_fields,
    one_of,
    option,
)
from regmax.files import read_json
from regmax.mappings import MAPPINGS, named, parse

Files = tuple[str, ...]

# Section 3 of the paper: gamma = 1, lam = .1 for fusedmax, p = 1.5; oscarmax counts every pair of
# words, so that its lam is smaller.
LAM = {name: row.default for name, row in MAPPINGS.items() if row.strength == "lam"}
# Where annealing starts. At uniform weights the Jacobian of a sparse mapping is d times that of softmax: attention
# collapses onto a wrong word before the encoder has learned anything, and gets no gradient back.
DENSE_GAMMA = 4.0
# By task, preset and mapping: the knee of score against segment length (docs/results/real-data.md). A lam of 1 must
# grow: from the start it fuses whole rows of an untrained model, which then get no gradient. In summarization a larger
# lam than the mapping's own loses, and its own scores higher if it grows; entailment takes it as it is.
KNEES: dict[tuple[str, str, str], dict[str, float]] = {
    ("translation", "small", "fusedmax"): {"lam": 1.0, "grow_begin": 0.4, "grow_end": 0.7},
    ("summarization", "small", "fusedmax"): {"grow_begin": 0.2, "grow_end": 0.5},
}
GROWTH = ("grow_begin", "grow_end")


@dataclass(frozen=True)
class Config:
    """What all tasks share."""

    task: str
    preset: str
    train: Files = option(
        (),
        "training files: a source and its target, or one JSON-lines file; if omitted, data is generated",
        "data",
    )
    dev: Files = option((), "development files, used to select the best epoch", "data")
    test: Files = option((), "test files; files after the second are further references", "data")
    generated: int = option(4000, "number of generated training pairs", "data", COUNT)
    most_pairs: int = option(
        0, "train on a random subset of this many pairs; 0: on all pairs", "data", COUNT_OR_ZERO
    )
    mapping: str = option("softmax", f"one of {', '.join(MAPPINGS)}", "attention")
    gamma: float = option(1.0, "strength of the regularizer; larger is denser", "attention", POSITIVE)
    lam: float | None = option(
        None,
        "fusing strength of fusedmax and oscarmax",
        "attention",
        NON_NEGATIVE,
    )
    p: float = option(1.5, "exponent of sqpnormmax's norm, in (1, 2]; 2 is sparsemax", "attention", NORM)
    alpha: float = option(1.5, "alpha of entmax, in [1, 2]; 1 is softmax, 2 is sparsemax", "attention", ALPHA)
    anneal_from: float = option(
        0.0,
        "initial gamma, which is annealed to --gamma; 0: no annealing",
        "attention",
        NON_NEGATIVE,
    )
    anneal_begin: float = option(
        0.2, "fraction of the steps after which annealing begins", "attention", SHARE
    )
    anneal_end: float = option(
        0.7, "fraction of the steps after which gamma has reached --gamma", "attention", SHARE
    )
    grow_begin: float = option(
        0.0, "fraction of the steps after which lam begins to grow from zero", "attention", SHARE
    )
    grow_end: float = option(
        0.0,
        "fraction of the steps after which lam has reached --lam; 0: constant lam, by default the mapping's own",
        "attention",
        SHARE,
    )
    seed: int = option(0, "random seed of initial weights, batch order and dropout", "training", SEED)
    epochs: int = option(5, "passes over the training set", "training", COUNT)
    batch: int = option(64, "batch size in sentences", "training", COUNT)
    optimizer: str = option("adam", "adam or sgd", "training", one_of("adam", "sgd"))
    rate: float = option(1e-3, "learning rate", "training", POSITIVE)
    warm_up: float = option(
        0.0, "fraction of the steps over which the learning rate rises from zero", "training", SHARE
    )
    decay_from: float = option(
        1.0,
        "fraction of the steps after which the learning rate decays linearly to zero; 1: never",
        "training",
        SHARE,
    )
    halve_after: int = option(
        0, "halve the learning rate after this epoch and every later one; 0: never", "training", COUNT_OR_ZERO
    )
    clip: float = option(5.0, "maximum gradient norm", "training", POSITIVE)
    weight_decay: float = option(0.0, "weight decay of the optimizer", "training", NON_NEGATIVE)
    dropout: float = option(0.3, "dropout probability, in [0, 1)", "training", PROBABILITY)
    patience: int = option(
        0, "stop after this many epochs without a better dev score; 0: never", "training", COUNT_OR_ZERO
    )
    save_every: int = option(
        200, "steps between checkpoints; one is also written after each epoch", "training", COUNT
    )
    device: str = option(
        "auto", "a torch device, e.g. cpu or cuda:1; auto: a GPU if there is one", "training"
    )
    tensorboard: bool = option(True, "write TensorBoard logs to the run folder", "training")

    def __post_init__(self) -> None:
        try:
            named(self.mapping)
        except ValueError as error:
            raise ExperimentError(str(error)) from None
        check_fields(self)
        for begin, end in (("anneal_begin", "anneal_end"), ("grow_begin", "grow_end")):
            if getattr(self, begin) > getattr(self, end):
                raise ExperimentError(f"`{begin}` and `{end}` must be fractions of the steps, in this order.")
        if self.grow_end and self.mapping not in LAM:
            raise ExperimentError(
                f"`grow_end` needs a mapping with a lam: {', '.join(LAM)}. Got {self.mapping}."
            )


@dataclass(frozen=True)
class Seq2SeqConfig(Config):
    """Translation and summarization: an LSTM encoder and decoder with global attention and input feeding."""

    masks: str = option(
        "", "file of keep-masks for the test set, for the precision and recall of attention", "data"
    )
    lower: bool = option(True, "lower-case all text", "data")
    largest_vocabulary: int = option(50_000, "maximum vocabulary size", "data", COUNT)
    least_count: int = option(
        1, "words that are rarer than this in the training set become <unk>", "data", COUNT
    )
    longest: int = option(
        50, "maximum length of training sentences in words; pairs with longer ones are dropped", "data", COUNT
    )
    longest_test: int = option(
        100, "maximum length of dev and test sentences and of outputs, in words", "data", COUNT
    )
    words: int = option(500, "dimension of the word vectors", "model", COUNT)
    hidden: int = option(500, "dimension of the hidden states", "model", COUNT)
    layers: int = option(2, "LSTM layers in the encoder and in the decoder", "model", COUNT)
    bidirectional: bool = option(
        False, "bidirectional encoder, with half the dimension in each direction", "model"
    )
    shared: bool = option(
        False, "share one vocabulary and one embedding between source, target and output layer", "model"
    )
    scaled: bool = option(False, "divide the scores by sqrt(hidden), so that attention starts dense", "model")
    word_values: bool = option(
        False, "attend over the word vectors too, not only over the encoder's states", "model"
    )
    frequent: int = option(
        0,
        "vocabulary of the first level of a two-level output layer, which trains faster; 0: one level",
        "model",
        COUNT_OR_ZERO,
    )
    init: float = option(
        0.1, "bound of the uniform initialization; 0: torch's default", "model", NON_NEGATIVE
    )
    per_sentence: bool = option(
        True, "divide the loss by the sentences of a batch instead of its words", "training"
    )
    beam: int = option(5, "beam size", "decoding", COUNT)
    copy_unknown: bool = option(
        False, "replace <unk> in the output by the source word with the largest weight", "decoding"
    )
    length_penalty: float = option(
        0.0,
        "exponent X of the length penalty: hypotheses are ranked by log p / length ** X",
        "decoding",
        NON_NEGATIVE,
    )
    decode_dev: bool = option(
        False, "also compute BLEU or ROUGE of greedy decoding after each epoch", "decoding"
    )
    truncate: int = option(
        75, "length of summaries in bytes for the truncated ROUGE scores", "decoding", COUNT
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bidirectional and self.hidden % 2:
            raise ExperimentError(f"`hidden` must be even for `bidirectional`. Got {self.hidden}.")
        if (self.shared or self.word_values) and self.words != self.hidden:
            raise ExperimentError(
                f"`words` must equal `hidden` for `shared` and `word_values`. Got {self.words} and {self.hidden}."
            )


@dataclass(frozen=True)
class EntailmentConfig(Config):
    """Two GRUs, and attention of the last state of the hypothesis over the premise."""

    glove: str = option(
        "", "file of fixed word vectors in GloVe's text format; if omitted, vectors are learned", "data"
    )
    parses: bool = option(False, "use the tokens of SNLI's parses", "data")
    words: int = option(300, "dimension of learned word vectors", "model", COUNT)
    hidden: int = option(150, "dimension of the hidden states", "model", COUNT)
    balance: bool = option(False, "weight labels by inverse frequency", "training")


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

    If a preset has a knee for the mapping, lam grows to it. Either fraction of the growth replaces both of the
    preset's, and a lam that does not grow is the mapping's own.

    Example:
        >>> make("translation", "small", {"mapping": "fusedmax"}).lam
        1.0
        >>> make("translation", "small", {"mapping": "fusedmax", "grow_end": 0.0}).lam
        0.1
    """
    changes = _fields(changes)
    config = dataclasses.replace(PRESETS[task, preset], **changes)
    given = [bool(files) for files in (config.train, config.dev, config.test)]
    if any(given) and not all(given):
        raise ExperimentError("`train`, `dev` and `test` must be given together, or none for generated data.")
    filled: dict[str, Any] = {}
    knee = KNEES.get((task, preset, config.mapping), {})
    if not changes.keys() & set(GROWTH):
        filled |= {name: knee[name] for name in GROWTH if name in knee}
    if config.lam is None:
        grows = filled.get("grow_end", config.grow_end) > 0
        own = LAM.get(config.mapping, 0.0)
        filled["lam"] = knee.get("lam", own) if grows else own
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
            raise ExperimentError(f"`{name}` is not a field of a run; {row.name} keeps its default.")
        if name in changes:
            raise ExperimentError(
                f"`{name}` must be given once. Got it in `mapping` and as a separate option."
            )
    return {**changes, "mapping": row.name, **strengths}


def dumps(config: Config) -> str:
    """A configuration as JSON."""
    return json.dumps(dataclasses.asdict(config), indent=1) + "\n"


def load(path: Path) -> Config:
    """Read a file of what `dumps` made."""
    try:
        fields = read_json(path)
        fields = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
        return type(PRESETS[fields["task"], fields["preset"]])(**fields)
    except (ValueError, KeyError, TypeError, AttributeError, ExperimentError) as error:
        raise ExperimentError(f"{path} is not the configuration of a run: {error}.") from error
