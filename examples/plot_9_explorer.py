"""
The explorer in a notebook
==========================

:func:`regmax.plots.explore` returns a page that a notebook shows as the value of a cell. Nothing is loaded from a
network: the mappings run in the page. Move the sliders, point at the cells, or look at all heads.
"""

import torch

import regmax
from regmax.plots import compare_examples, explore, record_examples

# %%
# An encoder of two layers, recorded under softmax and under fusedmax. It is not trained: the words attend at random.
torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(64, 4, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
words = ["the", "old", "keeper", "has", "not", "seen", "a", "single", "ship", "since", "early", "spring", "."]
x = 2 * torch.randn(1, len(words), 64)

found = {}
for mapping in ("softmax", "fusedmax,lam=0.05"):
    regmax.replace_attention(model, mapping)
    with torch.no_grad(), regmax.record_attention(model) as record:
        model(x)
    found[mapping] = record_examples(record, words)

# %%
# Both side by side: a click on a head opens it in both panels.
explore(compare_examples(found))

# %%
# The sentences that come with regmax; `explore().save("attention.html")` writes the page for others.
explore()
