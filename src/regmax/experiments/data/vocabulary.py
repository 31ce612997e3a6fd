"""Words as numbers, the most frequent first."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from regmax.experiments.data.lines import read_lines
from regmax.experiments.errors import ExperimentError
from regmax.files import write_atomically

PAD, UNKNOWN, START, END = range(4)
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")


@dataclass(frozen=True)
class Vocabulary:
    """The special words, then the others by decreasing frequency.

    Example:
        >>> vocabulary = Vocabulary.build([["a", "b", "a"]], largest=1)
        >>> vocabulary.encode(["a", "b"])
        [4, 1]
        >>> vocabulary.decode([4, 1, 3])
        ('a', '<unk>')
    """

    words: tuple[str, ...]
    _numbers: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_numbers", {word: number for number, word in enumerate(self.words)})

    @classmethod
    def build(
        cls, sentences: Iterable[Sequence[str]], *, largest: int = 50_000, least_count: int = 1
    ) -> "Vocabulary":
        """The `largest` most frequent words among those that occur at least `least_count` times."""
        counts = Counter(word for sentence in sentences for word in sentence if word not in SPECIAL)
        # Ties are in alphabetical order, so the vocabulary does not depend on the order of the text.
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        words = [word for word, count in ranked[:largest] if count >= least_count]
        if not words:
            raise ExperimentError(
                f"The vocabulary is empty: none of {len(counts)} words occurs {least_count} times or more "
                f"within a limit of {largest}."
            )
        return cls((*SPECIAL, *words))

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """Read a vocabulary written by `save`."""
        words = tuple(read_lines(path))
        if words[: len(SPECIAL)] != SPECIAL:
            raise ExperimentError(f"{path} is not a vocabulary: its first lines must be {' '.join(SPECIAL)}.")
        return cls(words)

    def save(self, path: Path) -> None:
        """Write one word per line."""
        write_atomically(path, "".join(f"{word}\n" for word in self.words))

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """The words' numbers; `UNKNOWN` for words that are not in the vocabulary."""
        return [self._numbers.get(token, UNKNOWN) for token in tokens]

    def decode(self, numbers: Iterable[int]) -> tuple[str, ...]:
        """The words up to the end of the sentence."""
        words = []
        for number in numbers:
            if number == END:
                break
            words.append(self.words[number])
        return tuple(words)
