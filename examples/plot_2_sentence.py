"""
One sentence under every mapping
================================

Softmax spreads its weight over all words. The other mappings give some words no weight. fusedmax also gives adjacent
words one weight (a segment), and oscarmax gives words one weight wherever they are (a cluster).
"""

import numpy as np

import regmax
from regmax.plots import Panel, Setting, attention_panels, demo_examples

example = demo_examples().examples[0]
view = example.views[0]
print(" ".join(example.source))

# %%
# The scores come with regmax. They are made up, like those of a translation model: one row per target word, before any
# mapping. A ``Setting`` is a mapping with its strengths. Exact zeros are grey, adjacent words with exactly equal
# weights have no border between them, and the members of one oscarmax cluster carry the same bullet.

settings = [
    Setting.parse(text)
    for text in (
        "softmax",
        "entmax",
        "sparsemax",
        "sqpnormmax,p=1.5",
        "fusedmax,lam=0.1",
        "oscarmax,lam=0.02",
    )
]
panels = [Panel(setting(view.scores), view.target, setting.label, setting.clustered) for setting in settings]
figure = attention_panels(panels, example.source)

# %%
# The same as numbers: how many words get a weight, and how many groups of equal weight they form.

print("mapping                    words  groups")
for setting in settings:
    y = setting(view.scores)
    found = regmax.groups(np.nan_to_num(y), contiguous=not setting.clustered)
    print(f"{setting.label:<24} {(y > 0).sum(-1).mean():6.1f} {found.ids.max(-1).mean():7.1f}")
