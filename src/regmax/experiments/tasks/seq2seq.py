"""Translation and summarization."""

import random
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from regmax.experiments.config import Seq2SeqConfig
from regmax.experiments.data.batches import batches, in_order, padded
from regmax.experiments.data.pairs import Pair, prune, read_pairs, require_words, with_keep_masks
from regmax.experiments.data.vocabulary import END, PAD, SPECIAL, START, UNKNOWN, Vocabulary
from regmax.experiments.generate import Splits, generate
from regmax.experiments.generate.summarization import headline
from regmax.experiments.generate.translation import sentence
from regmax.experiments.metrics.attention import AttentionStatistics
from regmax.experiments.metrics.bleu import bleu
from regmax.experiments.metrics.overlap import complaint
from regmax.experiments.metrics.rouge import rouge, truncate
from regmax.experiments.models.search import Hypothesis, beam_search
from regmax.experiments.models.seq2seq import Batch, Seq2Seq
from regmax.experiments.tasks.base import Result, Task

_EXAMPLES = 50  # sentences whose attention is kept for the plots
_SOURCE, _TARGET = "vocabulary.source.txt", "vocabulary.target.txt"


class Seq2SeqTask(Task):
    """Pairs, their vocabularies, and the encoder-decoder."""

    def __init__(
        self,
        config: Seq2SeqConfig,
        splits: Splits[Pair],
        vocabularies: tuple[Vocabulary, Vocabulary],
        device: torch.device,
    ) -> None:
        self.config: Seq2SeqConfig = config
        self.source_words, self.target_words = vocabularies
        self.device = device
        self.dev, self.test_pairs = splits.dev, splits.test
        self._train = [self._encode(pair) for pair in splits.train]
        self.model: Seq2Seq = Seq2Seq(config, len(self.source_words), len(self.target_words)).to(device)

    @classmethod
    def build(cls, config: Seq2SeqConfig, device: torch.device) -> "Seq2SeqTask":
        """Read or generate the data, and build the vocabularies."""
        splits = _splits(config)
        limits = {"largest": config.largest_vocabulary, "least_count": config.least_count}
        sources, targets = [pair.source for pair in splits.train], [pair.target for pair in splits.train]
        if config.shared:
            vocabulary = Vocabulary.build([*sources, *targets], **limits)
            return cls(config, splits, (vocabulary, vocabulary), device)
        vocabularies = Vocabulary.build(sources, **limits), Vocabulary.build(targets, **limits)
        return cls(config, splits, vocabularies, device)

    @classmethod
    def restore(cls, config: Seq2SeqConfig, folder: Path, device: torch.device) -> "Seq2SeqTask":
        test = _test_pairs(config) if config.test else _generated(config).test
        vocabularies = Vocabulary.load(folder / _SOURCE), Vocabulary.load(folder / _TARGET)
        return cls(config, Splits([], [], test), vocabularies, device)

    def save(self, folder: Path) -> None:
        self.source_words.save(folder / _SOURCE)
        self.target_words.save(folder / _TARGET)

    def fingerprint(self) -> str:
        return f"{zlib.crc32(repr(self._train).encode()):08x}"

    def epoch(self, epoch: int) -> list[list[int]]:
        lengths = [(len(source), len(target)) for source, target in self._train]
        return batches(lengths, self.config.batch, seed=self.config.seed, epoch=epoch)

    def batch(self, rows: Sequence[int]) -> Batch:
        return self._tensors([self._train[i] for i in rows])

    def weight(self, rows: Sequence[int]) -> float:
        if self.config.per_sentence:
            return len(rows)
        return sum(len(self._train[i][1]) - 1 for i in rows)  # START is given, not predicted

    def words(self, rows: Sequence[int]) -> int:
        return sum(len(self._train[i][0]) + len(self._train[i][1]) - 1 for i in rows)

    @torch.no_grad()
    def develop(self) -> dict[str, float]:
        self.model.eval()
        total, correct, count = 0.0, 0, 0
        for pairs in self._in_batches(self.dev, "dev set"):
            batch = self._tensors([self._encode(pair) for pair in pairs])
            real = batch.target[:, 1:] != PAD
            words = batch.target[:, 1:][real]
            log_p = self.model.output(self.model.teach(batch)[0][real])
            total -= float(log_p.gather(1, words.unsqueeze(1)).sum())
            correct += int((log_p.argmax(1) == words).sum())
            count += len(words)
        scores = {"loss": total / count, "accuracy": 100 * correct / count}
        if self.config.decode_dev:
            texts = self._texts(self.dev, self._decode(self.dev, beam=1))
            scores |= self._headline_score(texts, self.dev)
        return scores

    def test(self) -> Result:
        self.model.eval()
        hypotheses = list(self._decode(self.test_pairs, self.config.beam))
        texts = self._texts(self.test_pairs, hypotheses)
        scores, signature = self._scores(texts, self.test_pairs)
        examples = [
            _example(pair, (*text, "</s>")[: len(h.words)], h)
            for pair, text, h in list(zip(self.test_pairs, texts, hypotheses, strict=True))[:_EXAMPLES]
        ]
        references = [pair.references for pair in self.test_pairs]
        return Result(
            scores,
            {**_shape(hypotheses), **self._alignment(self.test_pairs)},
            "the model's output",
            signature,
            examples,
            outputs=[" ".join(text) for text in texts],
            references=[tuple(map(" ".join, choices)) for choices in references],
            complaint=complaint(texts, references),
        )

    def _scores(self, texts: list[tuple[str, ...]], pairs: list[Pair]) -> tuple[dict[str, float], str]:
        references = [pair.references for pair in pairs]
        if self.config.task == "translation":
            score, signature = bleu(texts, references)
            return {"BLEU": score}, signature
        scores = {}
        cut = [truncate(text, self.config.truncate) for text in texts]
        for kind, hypotheses in ((f" ({self.config.truncate} bytes)", cut), ("", texts)):
            for name, found in rouge(hypotheses, references).items():
                for part, value in found._asdict().items():
                    scores[f"{name} {part}{kind}"] = value
        return scores, "rouge-score, whitespace tokens, no stemming, mean over references; ROUGE-W-1.2"

    def _headline_score(self, texts: list[tuple[str, ...]], pairs: list[Pair]) -> dict[str, float]:
        scores, _ = self._scores(texts, pairs)
        return {name: value for name, value in scores.items() if name in ("BLEU", "ROUGE-1 f1", "ROUGE-L f1")}

    @torch.no_grad()
    def _alignment(self, pairs: list[Pair]) -> dict[str, float]:
        """How well attention finds the aligned words. Alignments belong to the reference, so it is fed to the model."""
        statistics = AttentionStatistics()
        aligned = [pair for pair in pairs if pair.alignment is not None]
        for part in self._in_batches(aligned, "alignment"):
            _, attentions = self.model.teach(self._tensors([self._encode(pair) for pair in part]))
            y = torch.stack([attention.y for attention in attentions], 1).cpu().numpy()
            for weights, pair in zip(y, part, strict=True):
                statistics.add(weights[: len(pair.target), : len(pair.source)], pair.alignment)
        means = statistics.means()
        return {name: means[name] for name in ("precision", "recall", "mass") if name in means}

    def _decode(self, pairs: list[Pair], beam: int) -> Iterator[Hypothesis]:
        """The best hypothesis of each pair, in the order of the pairs."""
        found: dict[int, Hypothesis] = {}
        batches = in_order([(len(pair.source),) for pair in pairs], self.config.batch)
        for rows in self.watch(batches, "decoding"):
            sources = [self.source_words.encode(pairs[i].source) for i in rows]
            lengths = torch.tensor([len(source) for source in sources], device=self.device)
            # Twice the source plus a few words: no translation is longer, and a bad model stops early.
            longest = min(self.config.longest_test, 2 * int(lengths.max()) + 10)
            hypotheses = beam_search(
                self.model, padded(sources, self.device), lengths,
                beam=beam, longest=longest, penalty=self.config.length_penalty,
            )  # fmt: skip
            found.update(zip(rows, hypotheses, strict=True))
        return (found[i] for i in range(len(pairs)))

    def _texts(self, pairs: Iterable[Pair], hypotheses: Iterable[Hypothesis]) -> list[tuple[str, ...]]:
        return [self._text(pair, h) for pair, h in zip(pairs, hypotheses, strict=True)]

    def _text(self, pair: Pair, hypothesis: Hypothesis) -> tuple[str, ...]:
        words = self.target_words.decode(hypothesis.words)
        if not self.config.copy_unknown:
            return words
        seen = hypothesis.y.argmax(1).tolist()  # the source position with the most weight at each step
        return tuple(
            pair.source[i] if word == SPECIAL[UNKNOWN] else word for word, i in zip(words, seen, strict=False)
        )

    def _encode(self, pair: Pair) -> tuple[list[int], list[int]]:
        return self.source_words.encode(pair.source), [START, *self.target_words.encode(pair.target), END]

    def _tensors(self, examples: Sequence[tuple[list[int], list[int]]]) -> Batch:
        sources, targets = zip(*examples, strict=True)
        lengths = torch.tensor([len(source) for source in sources], device=self.device)
        return Batch(padded(sources, self.device), lengths, padded(targets, self.device))

    def _in_batches(self, pairs: list[Pair], text: str) -> Iterator[list[Pair]]:
        for rows in self.watch(in_order([(len(pair.source),) for pair in pairs], self.config.batch), text):
            yield [pairs[i] for i in rows]


def _shape(hypotheses: Iterable[Hypothesis]) -> dict[str, float]:
    """Statistics of the attention for every word that the model wrote; the end of the sentence is none."""
    statistics = AttentionStatistics()
    for hypothesis in hypotheses:
        statistics.add(hypothesis.y[: len(hypothesis.words) - (hypothesis.words[-1] == END)].numpy())
    return statistics.means()


def _splits(config: Seq2SeqConfig) -> Splits[Pair]:
    if not config.train:
        return _generated(config)
    train = prune(read_pairs(_paths(config.train), lower=config.lower), config.longest)
    if config.most_pairs:
        random.Random("part").shuffle(train)
        train = train[: config.most_pairs]
    dev = read_pairs(_paths(config.dev), lower=config.lower)
    require_words(dev, _paths(config.dev))
    return Splits(train, prune(dev, config.longest_test), _test_pairs(config))


def _test_pairs(config: Seq2SeqConfig) -> list[Pair]:
    pairs = read_pairs(_paths(config.test), lower=config.lower)
    require_words(pairs, _paths(config.test))
    if config.masks:
        pairs = with_keep_masks(pairs, Path(config.masks))
    return prune(pairs, config.longest_test)


def _generated(config: Seq2SeqConfig) -> Splits[Pair]:
    return generate(sentence if config.task == "translation" else headline, config.generated)


def _paths(files: Sequence[str]) -> list[Path]:
    return [Path(file) for file in files]


def _example(pair: Pair, target: tuple[str, ...], hypothesis: Hypothesis) -> dict[str, Any]:
    return {
        "source": list(pair.source),
        "target": list(target),
        "reference": " ".join(pair.target),
        "scores": hypothesis.x.tolist(),
        "weights": hypothesis.y.tolist(),
    }
