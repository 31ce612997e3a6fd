"""
One sentence under every mapping
================================

Softmax spreads its weight over all words. The others leave words out, and say which belong together: fusedmax joins
neighbours, oscarmax joins words wherever they stand.
"""

import numpy as np

import regmax
from regmax.plots import Panel, Setting, attention_panels, demo_examples

example = demo_examples().examples[0]
view = example.views[0]
print(" ".join(example.source))

# %%
# The scores come with regmax, made up as a translation model might give them: a row for each target word, before any
# mapping. A ``Setting`` is a mapping with its strengths. Exact zeros are grey, neighbours of exactly equal weight have
# no border between them, and members of one oscarmax cluster carry the same bullet.

settings = [
    Setting.parse(text)
    for text in ("softmax", "sparsemax", "sqpnormmax,p=1.5", "fusedmax,lam=0.1", "oscarmax,lam=0.02")
]
panels = [Panel(setting(view.scores), view.target, setting.label, setting.clustered) for setting in settings]
figure = attention_panels(panels, example.source)

# %%
# The same read by a program: how many words get any weight, and into how many groups of equal weight they fall.

print("mapping                    words  groups")
for setting in settings:
    y = setting(view.scores)
    found = regmax.groups(np.nan_to_num(y), contiguous=not setting.clustered)
    print(f"{setting.label:<24} {(y > 0).sum(-1).mean():6.1f} {found.ids.max(-1).mean():7.1f}")
