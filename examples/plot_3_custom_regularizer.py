r"""
A custom regularizer
====================

Any differentiable, strongly convex function of the weights gives a mapping. This one pulls the weights towards a prior
:math:`q`, the positions that a model should look at unless the scores say otherwise,

.. math:: \Omega(y) = \tfrac12 \lVert y - q \rVert^2 + \tfrac{\mu}{2} \sum_i \left(y_{i+1} - y_i\right)^2.

The second term is a smooth variant of fusedmax's penalty: adjacent weights become similar, but not equal.
"""

import matplotlib.pyplot as plt
import torch

import regmax


class PriorAndSmooth(regmax.SmoothRegularizer):
    """Half the squared distance from a prior, and a quadratic penalty on steps."""

    def __init__(self, prior, mu):
        self.prior, self.mu = prior, mu

    def value(self, y):
        steps = y[..., 1:] - y[..., :-1]
        return ((y - self.prior) ** 2).sum(-1) / 2 + self.mu / 2 * (steps**2).sum(-1)


# %%
# Only ``value`` has to be written. An iterative solver computes the mapping, and the optimality conditions give its
# gradient.

x = torch.tensor([0.1, 0.9, 0.3, 0.7, -0.4, 0.2, 0.0, 0.1], dtype=torch.float64, requires_grad=True)
prior = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 0.3, 0.4, 0.3], dtype=torch.float64)
omega = PriorAndSmooth(prior, mu=0.5)
y = regmax.regularized_argmax(omega, x)
print(y.detach().numpy().round(3))

# %%
# The duality gap certifies the result: it is 0 at the optimum and positive everywhere else.

print(f"gap of the result: {regmax.duality_gap(omega, x, y).abs().item():.0e}")
print(f"gap of softmax:    {regmax.duality_gap(omega, x, torch.softmax(x, 0)).item():.2f}")

# %%
# The scores receive gradients, so the mapping can replace softmax in any model.

assert torch.autograd.gradcheck(lambda x: regmax.regularized_argmax(omega, x), x)

figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
curves = {
    "sparsemax": regmax.sparsemax(x),
    "prior, mu = 0": regmax.regularized_argmax(PriorAndSmooth(prior, mu=0.0), x),
    "prior, mu = 0.5": y,
}
for number, (name, weights) in enumerate(curves.items()):
    places = torch.arange(8) + 0.27 * (number - 1)
    axes.bar(places, weights.detach(), width=0.25, label=name)
axes.step(torch.arange(9) - 0.5, torch.cat([prior, prior[-1:]]), where="post", color="0.6", label="the prior")
axes.set(xlabel="position", ylabel="weight")
axes.legend()
