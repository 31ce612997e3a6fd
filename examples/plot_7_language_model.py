"""
A language model with a sparse output
=====================================

The loss of a language model may be any mapping's Fenchel-Young loss, not only softmax's, the cross entropy. With a
sparse mapping the model says which words can *not* follow. Here a small GPT-2 reads Python's own help texts, once with
every mapping that does not depend on the order of the vocabulary.
"""

import re
import time
from collections import Counter
from pydoc_data.topics import topics

import matplotlib.pyplot as plt
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import regmax
from regmax.integrations.transformers import SparseLogitsProcessor
from regmax.mappings import MAPPINGS

STEPS, BATCH, LENGTH, WIDTH = 80, 16, 24, 64
LOSSES = [name for name, row in MAPPINGS.items() if not row.segments and not row.clusters]

# %%
# The text, as numbers of its 1,999 most frequent words; all others are ``<unk>``, which is no target.

words = re.findall(r"[a-z]+|[.,;:()]", " ".join(topics.values()).lower())
vocabulary = ["<unk>"] + [word for word, _ in Counter(words).most_common(1999)]
number = {word: i for i, word in enumerate(vocabulary)}
text = torch.tensor([number.get(word, 0) for word in words])
train, test = text[: int(0.95 * len(text))], text[int(0.95 * len(text)) :]


def batch(source, generator):
    """Passages, and the words that follow each of their words."""
    starts = torch.randint(len(source) - LENGTH - 1, (BATCH, 1), generator=generator)
    passage = source[starts + torch.arange(LENGTH + 1)]
    return passage[:, :-1], passage[:, 1:]


# %%
# ``linear_fenchel_young_loss`` takes the hidden states and the weight of the model's output layer, which GPT-2 shares
# with its embedding. The scores of all words at all positions are never stored.


def loss(model, inputs, target, mapping):
    """The mean loss of the next words."""
    hidden = model.transformer(inputs).last_hidden_state
    return regmax.linear_fenchel_young_loss(
        hidden, model.lm_head.weight, target, mapping=mapping, ignore_index=0
    )


def trained(mapping):
    """A model, its losses, and the seconds of a step."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(vocabulary),
            n_embd=WIDTH,
            n_layer=2,
            n_head=2,
            n_positions=LENGTH,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            initializer_range=0.1,
            bos_token_id=None,
            eos_token_id=None,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    history, start = [], time.perf_counter()
    for _ in range(STEPS):
        value = loss(model, *batch(train, generator), mapping)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        history.append(float(value.detach()))
    return model.eval(), history, (time.perf_counter() - start) / STEPS


# %%
# Perplexity is defined for softmax only: a sparse mapping gives some words that do follow a probability of zero. The
# table shows how often that happens, how many words have weight, and how often the most probable word is right.


@torch.no_grad()
def evaluate(model, mapping):
    """Perplexity, accuracy, words with weight, and the share of next words without weight."""
    generator = torch.Generator().manual_seed(1)
    inputs, target = (
        torch.cat(parts) for parts in zip(*(batch(test, generator) for _ in range(4)), strict=True)
    )
    y = regmax.regularized_argmax(mapping, model(inputs).logits)[target != 0]
    at_target = y.gather(-1, target[target != 0][:, None])
    perplexity = float(at_target.log().mean().neg().exp())
    right = (y.argmax(-1) == target[target != 0]).float().mean()
    return (
        perplexity,
        float(right),
        float((y > 0).sum(-1).float().mean()),
        float((at_target == 0).float().mean()),
    )


models = {}
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
print("loss of      perplexity  accuracy  words with weight  excluded  ms per step")
for name in LOSSES:
    models[name], history, seconds = trained(name)
    perplexity, accuracy, support, excluded = evaluate(models[name], name)
    shown = f"{perplexity:10.1f}" if excluded == 0 else f"{'-':>10}"
    print(f"{name:<11}  {shown}  {accuracy:8.3f}  {support:17.1f}  {excluded:8.3f}  {1000 * seconds:11.1f}")
    axes.plot([value / history[0] for value in history], label=name)
axes.set(xlabel="step", ylabel="loss relative to the first step", ylim=(0, None))
axes.legend()

# %%
# ``generate`` draws from the model's own sparse distribution: unlikely words need no cutoff by ``top_k`` or ``top_p``.

prompt = torch.tensor([[number[word] for word in ["the", "value", "of", "the"]]])
for name in LOSSES[1:]:
    torch.manual_seed(0)
    out = models[name].generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=True,
        max_new_tokens=20,
        top_k=0,
        bad_words_ids=[[0]],
        pad_token_id=0,
        logits_processor=[SparseLogitsProcessor(name)],
    )
    print(f"{name}: {' '.join(vocabulary[i] for i in out[0])}")
