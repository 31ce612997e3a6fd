"""What `sparsify_attention` did: strengths, supports and errors of every head."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class HeadReport:
    """One head: its strengths (None: it keeps softmax), how many words it attends to, and its relative squared error.

    Example:
        >>> print(HeadReport("layer", 0, {"alpha": 1.5, "gamma": 2.0}, 3.2, 24.0, 0.04))
        layer, head 0: alpha 1.5, gamma 2; 3.2 of 24.0 words, error 0.04
    """

    layer: str
    head: int
    strengths: Mapping[str, float] | None
    words: float
    words_before: float
    error: float

    def __str__(self) -> str:
        chosen = _strengths(self.strengths)
        return (
            f"{self.layer}, head {self.head}: {chosen}; {self.words:.1f} of {self.words_before:.1f} words, "
            f"error {self.error:.2g}"
        )


@dataclass(frozen=True)
class SparsifyReport:
    """The result of `sparsify_attention`: one `HeadReport` per head, and the model before and after.

    `error` of a head is measured with the original's inputs to its layer, and interpolated if gamma was tuned; `words`
    in the finished model, after distillation if there was one. `output_error` is the relative squared error of the
    model's outputs.

    Example:
        >>> heads = (HeadReport("a", 0, {"gamma": 2.0}, 3.0, 9.0, 0.05), HeadReport("a", 1, None, 9.0, 9.0, 0.0))
        >>> report = SparsifyReport("sparsemax", 0.1, heads, output_error=0.02, before=0.91, after=0.9)
        >>> print(report)
        sparsemax in 1 of 2 heads: 6.0 of 9.0 words on average, output error 0.02, metric 0.91 -> 0.9
        layer   words of each head (- keeps softmax)   mean   largest error
        a         3.0     -                             6.0            0.05
        >>> report.words, report.kept
        (6.0, 1)
    """

    mapping: str
    tolerance: float
    heads: tuple[HeadReport, ...]
    output_error: float
    before: float | None = None
    after: float | None = None
    tuning: tuple[float, ...] = field(default=(), repr=False)  # the losses of tuning, step by step
    losses: tuple[float, ...] = field(default=(), repr=False)  # of the distillation, step by step
    seconds: float = 0.0

    @property
    def words(self) -> float:
        """The mean number of words that a head attends to."""
        return sum(head.words for head in self.heads) / len(self.heads)

    @property
    def words_before(self) -> float:
        """The same with softmax."""
        return sum(head.words_before for head in self.heads) / len(self.heads)

    @property
    def kept(self) -> int:
        """How many heads keep softmax."""
        return sum(head.strengths is None for head in self.heads)

    def layers(self) -> dict[str, list[HeadReport]]:
        """The heads by layer."""
        found: dict[str, list[HeadReport]] = {}
        for head in self.heads:
            found.setdefault(head.layer, []).append(head)
        return found

    def details(self) -> str:
        """A line for every head."""
        return "\n".join(str(head) for head in self.heads)

    def __str__(self) -> str:
        metric = f", metric {self.before:g} -> {self.after:g}" if self.after is not None else ""
        tuned = f", tuned for {len(self.tuning)} steps" if self.tuning else ""
        steps = f", distilled for {len(self.losses)} steps" if self.losses else ""
        title = (
            f"{self.mapping} in {len(self.heads) - self.kept} of {len(self.heads)} heads: {self.words:.1f} of "
            f"{self.words_before:.1f} words on average, output error {self.output_error:.2g}{metric}{tuned}{steps}"
        )
        layers = self.layers()
        rows = [
            (
                name,
                "".join("     -" if head.strengths is None else f"{head.words:6.1f}" for head in heads),
                f"{sum(head.words for head in heads) / len(heads):.1f}",
                f"{max(head.error for head in heads):.2g}",
            )
            for name, heads in layers.items()
        ]
        header = ("layer", "words of each head (- keeps softmax)", "mean", "largest error")
        widths = [max(len(row[i]) for row in (header, *rows)) for i in range(4)]
        lines = [
            f"{a:<{widths[0]}}   {b:<{widths[1]}}   {c:>{widths[2]}}   {d:>{widths[3]}}"
            for a, b, c, d in (header, *rows)
        ]
        return "\n".join([title, *lines])


def _strengths(strengths: Mapping[str, float] | None) -> str:
    if strengths is None:
        return "softmax"
    return ", ".join(f"{name} {value:g}" for name, value in sorted(strengths.items()))
