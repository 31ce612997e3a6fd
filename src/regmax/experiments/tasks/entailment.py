"""Textual entailment."""

import random
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from regmax.experiments.config import EntailmentConfig
from regmax.experiments.data.batches import batches, in_order, padded
from regmax.experiments.data.glove import read_glove
from regmax.experiments.data.snli import LABELS, Entailment, read_snli
from regmax.experiments.data.vocabulary import Vocabulary
from regmax.experiments.errors import ExperimentError
from regmax.experiments.generate import Splits, generate
from regmax.experiments.generate.entailment import inference
from regmax.experiments.metrics.attention import AttentionStatistics
from regmax.experiments.models.entailment import Batch, Classifier, Reading
from regmax.experiments.tasks.base import Result, Task

_EXAMPLES = 50
_WORDS = "vocabulary.txt"


class EntailmentTask(Task):
    """Premises and hypotheses, their vocabulary, and the classifier."""

    def __init__(
        self,
        config: EntailmentConfig,
        splits: Splits[Entailment],
        words: Vocabulary,
        vectors: Tensor | None,
        device: torch.device,
    ) -> None:
        self.config: EntailmentConfig = config
        self.vocabulary = words
        self.device = device
        self._train, self.dev, self.test_pairs = splits.train, splits.dev, splits.test
        self._weights = _label_weights(splits.train, config.balance)
        self.model: Classifier = Classifier(config, len(words), vectors, self._weights).to(device)

    @classmethod
    def build(cls, config: EntailmentConfig, device: torch.device) -> "EntailmentTask":
        """Read or generate the data; with fixed vectors the vocabulary also covers the dev and test sets."""
        splits = _splits(config)
        counted = splits.train if not config.glove else [*splits.train, *splits.dev, *splits.test]
        words = Vocabulary.build(text for pair in counted for text in (pair.premise, pair.hypothesis))
        vectors = None
        if config.glove:
            vectors = torch.from_numpy(read_glove(Path(config.glove), words.words)[0])
        return cls(config, splits, words, vectors, device)

    @classmethod
    def restore(cls, config: EntailmentConfig, folder: Path, device: torch.device) -> "EntailmentTask":
        test = _read(config.test, config) if config.test else generate(inference, config.generated).test
        words = Vocabulary.load(folder / _WORDS)
        vectors = None
        if config.glove:
            vectors = torch.from_numpy(read_glove(Path(config.glove), words.words)[0])
        return cls(config, Splits([], [], test), words, vectors, device)

    def save(self, folder: Path) -> None:
        self.vocabulary.save(folder / _WORDS)

    def fingerprint(self) -> str:
        return f"{zlib.crc32(repr(self._train).encode()):08x}"

    def epoch(self, epoch: int) -> list[list[int]]:
        lengths = [(len(pair.premise), len(pair.hypothesis)) for pair in self._train]
        return batches(lengths, self.config.batch, seed=self.config.seed, epoch=epoch)

    def batch(self, rows: Sequence[int]) -> Batch:
        return self._tensors([self._train[i] for i in rows])

    def weight(self, rows: Sequence[int]) -> float:
        return float(sum(self._weights[self._train[i].label] for i in rows))

    def words(self, rows: Sequence[int]) -> int:
        return sum(len(self._train[i].premise) + len(self._train[i].hypothesis) for i in rows)

    def develop(self) -> dict[str, float]:
        return self._accuracy(self.dev)

    def test(self) -> Result:
        statistics = AttentionStatistics()
        examples: list[dict[str, Any]] = []
        outputs: list[str] = []
        for pair, logits, x, y in self._read(self.test_pairs):
            statistics.add(y.numpy()[None], None if pair.evidence is None else [pair.evidence])
            label = LABELS[int(logits.argmax())]
            outputs.append(label)
            if len(examples) < _EXAMPLES:
                examples.append(_example(pair, label, x, y))
        return Result(
            self._accuracy(self.test_pairs),
            statistics.means(),
            signature="accuracy in percent",
            examples=examples,
            outputs=outputs,
            references=[(LABELS[pair.label],) for pair in self.test_pairs],
        )

    def _accuracy(self, pairs: list[Entailment]) -> dict[str, float]:
        loss, correct = 0.0, 0
        for pair, logits, _, _ in self._read(pairs):
            correct += int(logits.argmax()) == pair.label
            loss += float(functional.cross_entropy(logits, torch.tensor(pair.label)))
        return {"accuracy": 100 * correct / len(pairs), "loss": loss / len(pairs)}

    @torch.no_grad()
    def _read(self, pairs: list[Entailment]) -> Iterator[tuple[Entailment, Tensor, Tensor, Tensor]]:
        """Each pair with its logits, scores and weights, in the order of the pairs."""
        self.model.eval()
        found: dict[int, tuple[Tensor, ...]] = {}
        for rows in self.watch(in_order([(len(pair.premise),) for pair in pairs], 256), "reading"):
            reading: Reading = self.model.read(self._tensors([pairs[i] for i in rows]))
            found.update(zip(rows, zip(*(part.cpu() for part in reading), strict=True), strict=True))
        for i, pair in enumerate(pairs):
            logits, x, y = found[i]
            yield pair, logits, x[: len(pair.premise)], y[: len(pair.premise)]

    def _tensors(self, pairs: Sequence[Entailment]) -> Batch:
        premises = [self.vocabulary.encode(pair.premise) for pair in pairs]
        hypotheses = [self.vocabulary.encode(pair.hypothesis) for pair in pairs]
        lengths = [
            torch.tensor([len(t) for t in texts], device=self.device) for texts in (premises, hypotheses)
        ]
        labels = torch.tensor([pair.label for pair in pairs], device=self.device)
        return Batch(
            padded(premises, self.device), lengths[0], padded(hypotheses, self.device), lengths[1], labels
        )


def _splits(config: EntailmentConfig) -> Splits[Entailment]:
    if not config.train:
        return generate(inference, config.generated)
    train = _read(config.train, config)
    if config.most_pairs:
        random.Random("part").shuffle(train)
        train = train[: config.most_pairs]
    return Splits(train, _read(config.dev, config), _read(config.test, config))


def _read(files: Sequence[str], config: EntailmentConfig) -> list[Entailment]:
    if len(files) != 1:
        raise ExperimentError(f"Entailment reads one JSON-lines file for each set. Got {len(files)} files.")
    return read_snli(Path(files[0]), parses=config.parses)


def _label_weights(pairs: Sequence[Entailment], balance: bool) -> Tensor:
    counts = Counter(pair.label for pair in pairs)
    if not balance or not counts:
        return torch.ones(len(LABELS))
    return torch.tensor([len(pairs) / (len(LABELS) * max(counts[i], 1)) for i in range(len(LABELS))])


def _example(pair: Entailment, label: str, x: Tensor, y: Tensor) -> dict[str, Any]:
    premise, hypothesis = " ".join(pair.premise), " ".join(pair.hypothesis)
    return {
        "name": f"{hypothesis} ← {premise}",  # pairs that share a premise differ at once
        "source": list(pair.premise),
        "target": [hypothesis],
        "reference": LABELS[pair.label],
        "output": label,
        "scores": [x.tolist()],
        "weights": [y.tolist()],
    }
