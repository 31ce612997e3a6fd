"""Train a small causal language model from scratch, once with each mapping, on generated text.

The text consists of facts and a question about one of them:

    map bob . key ann . lamp eve . ring tom . key ann

The last word can be predicted only from an earlier fact: the model must find the first `key` and repeat the word after
it. The table shows the accuracy, and how many earlier words a head of the last layer looks at.

    python examples/train_tiny_transformer.py [--steps 400]
"""

import argparse
import time

import torch
from torch import Tensor, nn
from torch.nn import functional

import regmax

THINGS = ("map", "key", "lamp", "ring", "book", "coin", "rope", "bell")
PEOPLE = ("ann", "bob", "eve", "dan", "ida", "leo", "mia", "tom")
WORDS = (".", *THINGS, *PEOPLE)
MAPPINGS = ("softmax", "sparsemax", "fusedmax", "oscarmax", "sqpnormmax", "entmax")
FACTS, WIDTH, HEADS, LAYERS = 4, 64, 2, 2
LENGTH = 3 * FACTS + 2


def sentences(n: int, generator: torch.Generator) -> Tensor:
    """(n, LENGTH) word numbers; no thing appears in two facts of one text."""
    things = 1 + torch.rand(n, len(THINGS), generator=generator).argsort(1)[:, :FACTS]
    people = 1 + len(THINGS) + torch.randint(len(PEOPLE), (n, FACTS), generator=generator)
    facts = torch.stack([things, people, torch.zeros_like(things)], 2).flatten(1)
    asked = torch.randint(FACTS, (n, 1), generator=generator)
    return torch.cat([facts, things.gather(1, asked), people.gather(1, asked)], 1)


class LanguageModel(nn.Module):
    """torch's own encoder with a causal mask and replaced attention."""

    def __init__(self, mapping: str) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(len(WORDS), WIDTH), nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, 0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.next_word = nn.Linear(WIDTH, len(WORDS))
        regmax.replace_attention(self, mapping)

    def forward(self, words: Tensor) -> Tensor:
        """Logits of the next word at every position."""
        n = words.shape[1]
        x = self.words(words) + self.places.weight[:n]
        mask = nn.Transformer.generate_square_subsequent_mask(n)
        return self.next_word(self.encoder(x, mask=mask, is_causal=True))

    def weights(self, words: Tensor) -> Tensor:
        """The last layer's weights, (batch, heads, queries, keys), from a second call of its attention module."""
        attend = self.encoder.layers[-1].self_attn
        inputs: list[Tensor] = []
        hook = attend.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
        self(words)
        hook.remove()
        (x,) = inputs
        return attend(x, x, x, is_causal=True, average_attn_weights=False)[1]


def train(mapping: str, steps: int) -> LanguageModel:
    """A trained model; every mapping starts from the same parameters and reads the same text."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = LanguageModel(mapping)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(steps):
        text = sentences(64, generator)
        loss = functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


@torch.no_grad()
def evaluate(model: LanguageModel) -> tuple[float, float]:
    """The accuracy of the answer, and the mean size of the support at the answer's position."""
    text = sentences(500, torch.Generator().manual_seed(1))
    right = model(text[:, :-1])[:, -1].argmax(-1) == text[:, -1]
    looked = (model.weights(text[:, :-1])[:, :, -1] != 0).sum(-1)
    return float(right.float().mean()), float(looked.float().mean())


@torch.no_grad()
def show(model: LanguageModel) -> None:
    """Print the weights with which each head answers one text."""
    text = sentences(1, torch.Generator().manual_seed(2))
    y = model.weights(text[:, :-1])[0, :, -1]
    for head, weights in enumerate(y.tolist()):
        looked = (f"{WORDS[i]} {w:.2f}" for i, w in zip(text[0].tolist(), weights, strict=False) if w)
        print(f"    head {head}: {'  '.join(looked)}")


def main(steps: int = 400) -> dict[str, float]:
    """Train with every mapping; returns the accuracies by name."""
    accuracies = {}
    print("mapping     accuracy  words looked at  seconds")
    for mapping in MAPPINGS:
        start = time.perf_counter()
        model = train(mapping, steps)
        accuracy, looked = evaluate(model)
        print(f"{mapping:<10}  {accuracy:8.3f}  {looked:15.1f}  {time.perf_counter() - start:7.1f}")
        show(model)
        accuracies[mapping] = accuracy
    return accuracies


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=400)
    main(parser.parse_args().steps)
