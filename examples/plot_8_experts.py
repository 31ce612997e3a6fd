"""
A mixture of experts that computes only the experts in use
==========================================================

A router gives every input a weight for each expert, and the output is the weighted sum of the experts' outputs. With
softmax all experts must be computed. With a sparse mapping most weights are exactly zero, and these experts need not be
computed: conditional computation, which the paper names as an application. Unlike with a hard choice of the best ``k``,
the number of experts varies, and the router gets a gradient.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

import regmax
from regmax.mappings import MAPPINGS

EXPERTS, HIDDEN, STEPS = 8, 16, 250
ROUTERS = [name for name, row in MAPPINGS.items() if not row.segments and not row.clusters]


class Experts(nn.Module):
    """Small networks, of which a router uses a few for every input."""

    def __init__(self, mapping):
        super().__init__()
        self.mapping = mapping
        self.router = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, EXPERTS))
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(2, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1)) for _ in range(EXPERTS)
        )

    def weights(self, x):
        """The weight of every expert, (inputs, experts)."""
        return regmax.regularized_argmax(self.mapping, self.router(x))

    def forward(self, x):
        """Only inputs with a weight reach an expert."""
        y = self.weights(x)
        out = x.new_zeros(len(x), 1)
        self.computed = 0
        for weight, expert in zip(y.T, self.experts, strict=True):
            (used,) = weight.nonzero(as_tuple=True)
            if len(used):
                out = out.index_add(0, used, weight[used, None] * expert(x[used]))
                self.computed += len(used)
        return out


# %%
# The task: a function of the plane that oscillates in a different direction in every sector.


def batch(n, generator):
    """Points, and the values of the function."""
    x = 2 * torch.rand(n, 2, generator=generator) - 1
    sector = ((torch.atan2(x[:, 1], x[:, 0]) / torch.pi + 1) * 3).floor()
    angle = 1.1 * sector
    return x, torch.sin(5 * (x[:, 0] * angle.cos() + x[:, 1] * angle.sin()))[:, None]


def trained(mapping):
    """A model and its error on new points."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = Experts(mapping)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(STEPS):
        x, target = batch(512, generator)
        loss = (model(x) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        x, target = batch(4000, torch.Generator().manual_seed(1))
        error = float((model(x) - target).square().mean())
    return model, error


# %%
# ``experts computed`` counts the inputs that reached an expert, per input.

print("router      error  experts computed")
models = {}
for name in ROUTERS:
    models[name], error = trained(name)
    print(f"{name:<10}  {error:.3f}  {models[name].computed / 4000:16.2f}")

# %%
# The plane, coloured by the expert of the largest weight; the darker, the more experts take part.

side = torch.linspace(-1, 1, 120)
plane = torch.cartesian_prod(side, side)
figure, axes = plt.subplots(1, len(ROUTERS), figsize=(3 * len(ROUTERS), 3), layout="constrained")
for panel, (name, model) in zip(axes, models.items(), strict=True):
    with torch.no_grad():
        y = model.weights(plane)
    colours = torch.tensor(plt.get_cmap("tab10").colors)[y.argmax(-1)]
    many = ((y > 0).sum(-1, keepdim=True) - 1) / (EXPERTS - 1)
    picture = (colours * (1 - 0.6 * many)).reshape(120, 120, 3).transpose(0, 1)
    panel.imshow(picture.numpy(), origin="lower", extent=(-1, 1, -1, 1))
    panel.set(title=name, xticks=(), yticks=())
