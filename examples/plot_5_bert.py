"""
BERT with fusedmax
==================

Hugging Face models take a mapping by name. The model here is a small BERT with random weights, so that the page needs
no download; with ``from_pretrained`` and a folder of yours the lines are the same.
"""

import torch
import transformers

import regmax
from regmax.integrations import transformers as sparse
from regmax.plots import attention_heads, attention_heatmap

sentence = "[CLS] the keeper of the old lighthouse lit the lamp [SEP] [PAD] [PAD]"
words = sentence.split()
vocabulary = sorted(set(words))
inputs = {
    "input_ids": torch.tensor([[vocabulary.index(word) for word in words]]),
    "attention_mask": torch.tensor([[int(word != "[PAD]") for word in words]]),
}

# %%
# After ``register()`` every mapping is an ``attn_implementation``; a regularizer with strengths of its own gets a name
# of its own.

sparse.register()
sparse.register("fusedmax-strong", regmax.FusedLasso(lam=0.3))

torch.manual_seed(0)
config = transformers.BertConfig(
    vocab_size=len(vocabulary),
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=128,
    initializer_range=0.35,
)
model = transformers.AutoModel.from_config(config, attn_implementation="fusedmax").eval()

# %%
# Some models take the name and compute softmax all the same. ``check`` runs the model once, counts the calls of every
# layer, and raises if one never asks.

print(sparse.check(model, inputs))

# %%
# The weights come out as always. Grey is exactly zero, the padding among it; where there is no border, weights are
# equal to the last bit.

with torch.no_grad():
    attentions = model(**inputs, output_attentions=True).attentions
figure = attention_heatmap(attentions[1][0, 0], words, words)

# %%
# Every layer and head at a glance, with the stronger setting:

model.set_attn_implementation("fusedmax-strong")
with torch.no_grad():
    attentions = model(**inputs, output_attentions=True).attentions
figure = attention_heads(attentions)

# %%
# A trained model that is switched has to be trained a little more: ``examples/bert_fusedmax.py`` does it from beginning
# to end, saving and loading included.
