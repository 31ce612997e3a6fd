r"""
The mappings in two and three dimensions
========================================

All mappings come from one problem. They are the gradient of the maximum of a linear function minus a regularizer over
the simplex,

.. math:: \max_\Omega(x) = \max_{y \in \Delta^d}\; y^\top x - \gamma\,\Omega(y).

In two dimensions, with scores :math:`(t, 0)`, the maximum is a smoothed ``max(t, 0)`` and the mapping is a sigmoid:
this is the paper's Figure 2. Only softmax never reaches 0 and 1.
"""

from regmax.plots import mapping_curves, mapping_surfaces

figure = mapping_curves(gamma=1.0)

# %%
# A smaller gamma brings the curves closer to the maximum, and the mappings closer to a step.

figure = mapping_curves(gamma=0.25)

# %%
# In three dimensions, with scores :math:`(t_1, t_2, 0)`, the first weight is a surface. The mappings differ in its flat
# parts: at 0 and at 1 the weights are sparse, and on the ledges between them, which only fusedmax and oscarmax have,
# two weights are equal.

figure = mapping_surfaces(points=41)
