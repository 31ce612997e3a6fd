"""Switch a BERT from softmax to fusedmax, and show what it looks at.

To need no download, the model is small and learns its task here. In a generated review,

    the food was quite bad , the staff was truly great , the room was rather poor ,

only the judgement after `truly` counts. The other steps are the same for any Hugging Face model: register, switch,
check that the model calls the mapping, fine-tune, look at the weights, save, and load.

    python examples/bert_fusedmax.py [--steps 300]
"""

import argparse
import tempfile

import torch
import transformers
from torch import Tensor

import regmax
from regmax.integrations import transformers as sparse

TOPICS = ("food", "staff", "room", "view")
DEGREES = ("truly", "very", "quite", "rather")
GOOD, BAD = ("good", "fine", "great", "lovely"), ("bad", "poor", "awful", "dirty")
WORDS = ("[PAD]", "[CLS]", "the", "was", ",", *TOPICS, *DEGREES, *GOOD, *BAD)
CLAUSES, CLAUSE = 3, 6  # at most, and words in each


def reviews(n: int, seed: int) -> dict[str, Tensor]:
    """Reviews of two or three clauses, padded to one length; the label is 1 if the judgement that counts is bad."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=generator)

    def word(name: str, offset: Tensor) -> Tensor:
        return WORDS.index(name) + offset

    number, same = draw(2, CLAUSES + 1, n, 1), torch.zeros(n, CLAUSES, dtype=torch.long)
    counts = draw(0, 6, n, 1) % number  # which clause
    degrees = draw(1, len(DEGREES), n, CLAUSES).scatter(1, counts, 0)
    judgements = draw(0, len(GOOD + BAD), n, CLAUSES)
    topics = word("food", draw(0, len(TOPICS), n, CLAUSES))
    clause = (
        word("the", same),
        topics,
        word("was", same),
        word("truly", degrees),
        word("good", judgements),
        word(",", same),
    )
    missing = torch.arange(CLAUSES) >= number
    words = torch.stack(clause, 2).masked_fill(missing[..., None], WORDS.index("[PAD]")).flatten(1)
    words = torch.cat([word("[CLS]", same[:, :1]), words], 1)
    labels = (judgements.gather(1, counts) >= len(GOOD)).long().squeeze(1)
    return {"input_ids": words, "attention_mask": (words != 0).long(), "labels": labels}


def train(model: transformers.BertForSequenceClassification, steps: int) -> None:
    """Train with AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.train()
    for step in range(steps):
        optimizer.zero_grad()
        model(**reviews(64, seed=1000 + step)).loss.backward()
        optimizer.step()
    model.eval()


@torch.no_grad()
def accuracy(model: transformers.BertForSequenceClassification) -> float:
    """The share of correctly classified reviews."""
    batch = reviews(500, seed=1)
    return float((model(**batch).logits.argmax(-1) == batch["labels"]).float().mean())


@torch.no_grad()
def show(model: transformers.BertForSequenceClassification) -> None:
    """Print the weights of the last layer's heads for one review; words in one bracket have exactly equal weights."""
    batch = reviews(1, seed=4)
    words = [WORDS[i] for i in batch["input_ids"][0]]
    print("    " + " ".join(word for word in words if word != "[PAD]"))
    weights = model(**batch, output_attentions=True).attentions[-1][0, :, 0]
    mask = batch["attention_mask"][0].bool()
    for head, y in enumerate(weights):
        ids = regmax.groups(y, mask=mask).ids.tolist()
        groups = [[i for i, each in enumerate(ids) if each == group] for group in range(1, max(ids) + 1)]
        groups.sort(key=lambda group: -float(y[group].sum()))
        shown = (f"[{' '.join(words[i] for i in group)}] {float(y[group[0]]):.2f}" for group in groups[:4])
        print(f"    head {head}: {'  '.join(shown)}{'  ...' if len(groups) > 4 else ''}")


def build() -> transformers.BertForSequenceClassification:
    """A small BERT with softmax."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.1,
    )
    return transformers.AutoModelForSequenceClassification.from_config(config, attn_implementation="eager")


def main(steps: int = 300) -> tuple[float, float, float]:
    """Accuracy with softmax, right after the switch, and after fine-tuning."""
    model = build()
    train(model, steps)
    before = accuracy(model)
    print(f"softmax: accuracy {before:.3f}")
    show(model)

    sparse.register("fusedmax", regmax.FusedLasso(lam=0.1))
    model.set_attn_implementation("fusedmax")
    calls = sparse.check(model, reviews(2, seed=0))
    print(f"\nfusedmax, called by {', '.join(calls)}")
    switched = accuracy(model)
    print(f"just switched: accuracy {switched:.3f}")
    train(model, steps // 5)
    after = accuracy(model)
    print(f"fine-tuned: accuracy {after:.3f}")
    show(model)

    with tempfile.TemporaryDirectory() as directory:
        sparse.save_pretrained(model, directory)
        again = sparse.from_pretrained(transformers.AutoModelForSequenceClassification, directory).eval()
    print(f"\nsaved and loaded with {again.config._attn_implementation}: accuracy {accuracy(again):.3f}")
    return before, switched, after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=300)
    transformers.utils.logging.disable_progress_bar()
    main(parser.parse_args().steps)
