"""Retrieval learned at up to 64 positions, tested at up to 16,384: which mappings still find the needle?

Every position of a sequence has a key (a random vector) and a value (one of 16 classes); a query is a noisy copy of one
of the keys, and the answer is that position's class. The model has one layer of attention with four heads and knows no
positions, so that only attention can fail: among more keys, more of them resemble the query, and weights that are never
zero are spread over all of them. Each mapping is trained with and without a factor a + b log n of the scores, learned
per head, on the lengths 8 to 64.

    python examples/length_generalization.py --out build/length

Each finished run is a file in the folder, and is skipped when the command is repeated; a run takes about a minute of
one core. At the end the folder has `table.md` and `length.png`.
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import regmax
from regmax.mappings import MAPPINGS

CLASSES, WIDTH, HEADS, QUERIES, NOISE = 16, 32, 4, 16, 0.5  # every head sees the whole width
SHORTEST, LONGEST = 8, 64  # in training
LENGTHS = (64, 256, 1024, 4096, 16384)
Batch = tuple[Tensor, Tensor, Tensor, Tensor]


def draw(sequences: int, n: int, generator: torch.Generator) -> Batch:
    """Queries (sequences, QUERIES, WIDTH), keys (sequences, n, WIDTH), classes (sequences, n), and the answers."""
    keys = torch.randn(sequences, n, WIDTH, generator=generator)
    classes = torch.randint(CLASSES, (sequences, n), generator=generator)
    needles = torch.randint(n, (sequences, QUERIES), generator=generator)
    noise = NOISE * torch.randn(sequences, QUERIES, WIDTH, generator=generator)
    queries = keys.gather(1, needles[..., None].expand(-1, -1, WIDTH)) + noise
    return queries, keys, classes, classes.gather(1, needles)


class Retriever(nn.Module):
    """One layer of attention from queries to keys, and a classifier of what it finds."""

    def __init__(self, mapping: str, *, scaled: bool) -> None:
        super().__init__()
        self.mapping = regmax.nn.mappings.module(mapping)
        self.project_queries, self.project_keys = (nn.Linear(WIDTH, HEADS * WIDTH) for _ in range(2))
        self.values = nn.Embedding(CLASSES, HEADS * WIDTH)
        self.classify = nn.Linear(HEADS * WIDTH, CLASSES)
        # b of a + b log n is not negative, so that no length turns the scores round; a is in the weights.
        self.raw_b = nn.Parameter(torch.full((HEADS,), -2.0)) if scaled else None

    def forward(self, queries: Tensor, keys: Tensor, classes: Tensor) -> Tensor:
        """The logits of the classes, (sequences, queries, CLASSES)."""
        q = self._heads(self.project_queries(queries))
        if (b := self.b()) is not None:
            q = q * (1 + b * math.log(keys.shape[1]))[:, None, None]
        k, v = self._heads(self.project_keys(keys)), self._heads(self.values(classes))
        found = regmax.attention(q, k, v, mapping=self.mapping)
        return self.classify(found.transpose(1, 2).flatten(2))

    def b(self) -> Tensor | None:
        """The factors of log n, one per head."""
        return None if self.raw_b is None else functional.softplus(self.raw_b)

    @staticmethod
    def _heads(x: Tensor) -> Tensor:
        return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def train(mapping: str, *, scaled: bool, steps: int, seed: int = 0) -> Retriever:
    """Train on lengths from SHORTEST to LONGEST; gamma is annealed, so that sparse mappings start dense."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = Retriever(mapping, scaled=scaled)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, steps)
    anneal = (
        regmax.nn.AnnealGamma(model, start=4.0, steps=max(steps // 2, 1)) if mapping != "softmax" else None
    )
    for _ in range(steps):
        n = int(torch.randint(SHORTEST, LONGEST + 1, (), generator=generator))
        queries, keys, classes, answers = draw(32, n, generator)
        loss = functional.cross_entropy(model(queries, keys, classes).flatten(0, 1), answers.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
        if anneal is not None:
            anneal.step()
    return model.eval()


@torch.inference_mode()
def accuracy(model: Retriever, n: int, *, sequences: int) -> float:
    """The percentage of right answers at length n, on sequences that no training has seen."""
    generator, right = torch.Generator().manual_seed(10**6 + n), 0
    for _ in range(sequences):
        queries, keys, classes, answers = draw(1, n, generator)
        right += int((model(queries, keys, classes).argmax(-1) == answers).sum())
    return 100 * right / (sequences * QUERIES)


def run(mapping: str, *, scaled: bool, options: argparse.Namespace) -> dict[str, Any]:
    """One mapping with or without the factor: its accuracies by length, read if the run is finished."""
    path = Path(options.out) / f"{mapping}{'-log' if scaled else ''}.json"
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    model = train(mapping, scaled=scaled, steps=options.steps)
    scores = {str(n): accuracy(model, n, sequences=options.sequences) for n in options.lengths}
    factors = [] if (b := model.b()) is None else b.tolist()
    result = {"mapping": mapping, "scaled": scaled, "steps": options.steps, "accuracy": scores, "b": factors}
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(result))
    unfinished.replace(path)  # a killed run leaves no half result
    return result


def table(results: Sequence[dict[str, Any]]) -> str:
    """The accuracies in Markdown."""
    lengths = list(results[0]["accuracy"])
    lines = [f"| mapping | scores | {' | '.join(lengths)} |", "|---" * (2 + len(lengths)) + "|"]
    for each in results:
        cells = " | ".join(f"{each['accuracy'][n]:.1f}" for n in lengths)
        lines.append(f"| {each['mapping']} | {'a + b log n' if each['scaled'] else 'plain'} | {cells} |")
    return "\n".join(lines) + "\n"


def picture(results: Sequence[dict[str, Any]], path: Path) -> None:
    """Accuracy against length, dashed with the factor."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.subplots()
    for number, mapping in enumerate(dict.fromkeys(each["mapping"] for each in results)):
        for each in results:
            if each["mapping"] == mapping:
                lengths = [int(n) for n in each["accuracy"]]
                style = {"linestyle": "--" if each["scaled"] else "-", "color": f"C{number}"}
                label = None if each["scaled"] else mapping
                axes.plot(
                    lengths, list(each["accuracy"].values()), marker="o", markersize=3, label=label, **style
                )
    axes.set(xscale="log", xlabel="positions (trained on up to 64)", ylabel="needles found, %", ylim=(0, 101))
    axes.set_title("Retrieval beyond the trained length; dashed: scores times a + b log n", fontsize=9)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


def main(options: argparse.Namespace) -> list[dict[str, Any]]:
    """All runs, the table and the picture."""
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    results = []
    for mapping in options.mappings:
        for scaled in (False, True):
            results.append(run(mapping, scaled=scaled, options=options))
            print(json.dumps(results[-1]), flush=True)
    (out / "table.md").write_text(table(results))
    picture(results, out / "length.png")
    print(table(results))
    return results


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--out", required=True, metavar="FOLDER")
    made.add_argument("--mappings", nargs="+", default=list(MAPPINGS))
    made.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS))
    made.add_argument("--steps", type=int, default=1500)
    made.add_argument("--sequences", type=int, default=30, help="of each length, with 16 queries each")
    return made


if __name__ == "__main__":
    main(parser().parse_args())
