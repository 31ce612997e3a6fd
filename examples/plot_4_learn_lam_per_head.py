"""
Learning how strongly each head fuses
=====================================

``lam`` may be a parameter, one per head. Here two heads read noisy scores. The first should find one position, the
second a segment of four. Both start at the same ``lam``, and the gradient makes them specialise.
"""

import matplotlib.pyplot as plt
import torch

import regmax
from regmax.plots import Panel, attention_panels

D, HEADS = 16, 2
generator = torch.Generator().manual_seed(0)


def batch(n):
    """Noisy scores (n, heads, d), and the weights that they encode."""
    start = torch.randint(0, D - 3, (n, HEADS, 1), generator=generator)
    width = torch.tensor([1, 4])[:, None]
    place = torch.arange(D)
    wanted = ((place >= start) & (place < start + width)).float()
    noise = 0.35 * torch.randn(n, HEADS, D, generator=generator)
    return 1.2 * wanted + noise, wanted / width


# %%
# A module of ``regmax.nn`` holds the strengths, and ``learnable`` names those to train. A strength stays positive at
# every step of any optimizer.

fusedmax = regmax.nn.Fusedmax(lam=torch.full((HEADS, 1), 0.1), learnable="lam")
optimizer = torch.optim.Adam(fusedmax.parameters(), lr=0.05)
history = []
for _ in range(150):
    x, wanted = batch(256)
    loss = ((fusedmax(x) - wanted) ** 2).sum(-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(fusedmax.strengths["lam"].detach().flatten().clone())
for head, lam in enumerate(history[-1].tolist()):
    print(f"head {head + 1}: lam = {lam:.3f}")

# %%
# The head that looks for one position stops fusing, and the other learns to fuse more.

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for head, label in enumerate(("one position", "a segment of four")):
    axes.plot([lam[head] for lam in history], label=label)
axes.set(xlabel="step", ylabel="lam", ylim=(0, None))
axes.legend()

# %%
# New scores under each head's learned ``lam``, next to the weights that they encode: one row per example.

with torch.no_grad():
    x, wanted = batch(6)
    y = fusedmax(x)
rows, places = [str(i + 1) for i in range(6)], [str(i + 1) for i in range(D)]
panels = [
    Panel(weights[:, head], rows, f"head {head + 1}: {name}")
    for head in range(HEADS)
    for name, weights in (("wanted", wanted), ("found", y))
]
figure = attention_panels(panels, places, columns=2)
