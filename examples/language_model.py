"""Language models with sparse outputs: the same small GPT-2 trained with several losses, then used to write text.

    python examples/language_model.py                               # the pages of this project's documentation
    python examples/language_model.py --text corpus.txt --steps 600 # a text file, may be gzipped

The loss of a language model may be any mapping's Fenchel-Young loss, not only softmax's, the cross entropy. A sparse
mapping says which words can *not* follow. Every loss sees the same passages in the same order, from the same start.
The last twentieth of the text is the test set; rare words are replaced by `<unk>`, which is never a target. A run
takes a few minutes on one core.

Columns: `perplexity` is defined for softmax only, because a sparse mapping gives probability zero to some words that do
follow. `excluded` is their share, and `perplexity of the rest` is the perplexity of the other words. `accuracy` is how
often the most probable word is right, and `words` how many words have weight.
"""

import argparse
import gzip
import re
import time
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

import regmax
from regmax.integrations.transformers import SparseLogitsProcessor

DOCS = Path(__file__).parents[1] / "docs"
LOSSES = ["softmax", "entmax", "sparsemax"]
UNKNOWN = "<unk>"


def parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--text", type=Path, help="a text file, may be gzipped; without it, docs/*.md")
    made.add_argument("--losses", nargs="+", default=LOSSES, help="names of mappings")
    made.add_argument("--steps", type=int, default=600)
    made.add_argument("--batch", type=int, default=32, help="passages per step")
    made.add_argument("--length", type=int, default=24, help="words per passage")
    made.add_argument("--width", type=int, default=96)
    made.add_argument("--words", type=int, default=2000, help="the size of the vocabulary")
    made.add_argument(
        "--prompt", default="", help="the beginning of the texts; by default that of the test text"
    )
    return made


def read_words(path: Path | None) -> list[str]:
    """The words and punctuation marks of the text, in lower case."""
    if path is None:
        text = " ".join(page.read_text(encoding="utf-8") for page in sorted(DOCS.glob("*.md")))
    elif path.suffix == ".gz":
        text = gzip.decompress(path.read_bytes()).decode("utf-8")
    else:
        text = path.read_text(encoding="utf-8")
    return re.findall(r"[a-z]+|[.,;:()]", text.lower())


def batch(source: Tensor, options: argparse.Namespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Passages, and the words that follow each of their words."""
    starts = torch.randint(len(source) - options.length - 1, (options.batch, 1), generator=generator)
    passage = source[starts + torch.arange(options.length + 1)]
    return passage[:, :-1], passage[:, 1:]


def make_model(words: int, options: argparse.Namespace) -> GPT2LMHeadModel:
    """A model of two layers, the same for every loss."""
    torch.manual_seed(0)
    sizes = {"n_embd": options.width, "n_layer": 2, "n_head": 4, "n_positions": options.length + 32}
    nothing_dropped = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=words, bos_token_id=None, eos_token_id=None, **sizes, **nothing_dropped)
    )


def train(
    mapping: str, source: Tensor, words: int, options: argparse.Namespace
) -> tuple[GPT2LMHeadModel, float]:
    """A model, and the processor time of a step in seconds.

    `linear_fenchel_young_loss` takes the hidden states and the weight of the output layer, which GPT-2 shares with its
    embedding. The scores of all words at all positions are never stored.
    """
    model, generator = make_model(words, options), torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=options.steps)
    start = time.process_time()
    for _ in range(options.steps):
        inputs, target = batch(source, options, generator)
        hidden = model.transformer(inputs).last_hidden_state
        loss = regmax.linear_fenchel_young_loss(
            hidden, model.lm_head.weight, target, mapping=mapping, ignore_index=0
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval(), (time.process_time() - start) / options.steps


@torch.no_grad()
def evaluate(
    model: GPT2LMHeadModel, mapping: str, source: Tensor, options: argparse.Namespace
) -> dict[str, float]:
    """Figures of new passages: see the columns above."""
    generator = torch.Generator().manual_seed(1)
    weights, targets = [], []
    for _ in range(8):
        inputs, target = batch(source, options, generator)
        known = target != 0
        weights.append(regmax.regularized_argmax(mapping, model(inputs).logits)[known])
        targets.append(target[known])
    y, following = torch.cat(weights), torch.cat(targets)
    at_target = y.gather(-1, following[:, None])[:, 0]
    return {
        "perplexity of the rest": float(at_target[at_target > 0].log().mean().neg().exp()),
        "excluded": float((at_target == 0).float().mean()),
        "accuracy": float((y.argmax(-1) == following).float().mean()),
        "words": float((y > 0).sum(-1).float().mean()),
    }


def write_text(model: GPT2LMHeadModel, mapping: str, prompt: Tensor) -> Tensor:
    """`generate` draws from the model's own distribution: a sparse one needs no cutoff by `top_k` or `top_p`."""
    torch.manual_seed(0)
    return model.generate(
        prompt[None],
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        do_sample=True,
        max_new_tokens=24,
        top_k=0,
        bad_words_ids=[[0]],
        pad_token_id=0,
        logits_processor=[] if mapping == "softmax" else [SparseLogitsProcessor(mapping)],
    )[0]


def main(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Train, print the table and the texts, and return the figures of every loss."""
    words = read_words(options.text)
    vocabulary = [UNKNOWN] + [word for word, _ in Counter(words).most_common(options.words - 1)]
    number = {word: i for i, word in enumerate(vocabulary)}
    text = torch.tensor([number.get(word, 0) for word in words])
    source, test = text[: int(0.95 * len(text))], text[int(0.95 * len(text)) :]
    prompt = torch.tensor([number[word] for word in options.prompt.split()]) if options.prompt else test[:6]
    print(f"{len(words):,} words, {len(vocabulary):,} different ones, {options.steps} steps")
    print("| loss of | perplexity | perplexity of the rest | excluded | accuracy | words | ms per step |")
    print("|---|---|---|---|---|---|---|")
    results, texts = {}, {}
    for mapping in options.losses:
        model, seconds = train(mapping, source, len(vocabulary), options)
        found = results[mapping] = evaluate(model, mapping, test, options)
        whole = f"{found['perplexity of the rest']:.1f}" if found["excluded"] == 0 else "–"
        print(
            f"| {mapping} | {whole} | {found['perplexity of the rest']:.1f} | {found['excluded']:.3f} | "
            f"{found['accuracy']:.3f} | {found['words']:.1f} | {1000 * seconds:.0f} |",
            flush=True,
        )
        texts[mapping] = " ".join(vocabulary[i] for i in write_text(model, mapping, prompt))
    for mapping, written in texts.items():
        print(f"\n{mapping}: {written}")
    return results


if __name__ == "__main__":
    main(parser().parse_args())
