r"""
The mappings in two and three dimensions
========================================

All mappings come from one problem, the maximum over the simplex of a linear function minus a regularizer,

.. math:: \max_\Omega(x) = \max_{y \in \Delta^d}\; y^\top x - \gamma\,\Omega(y),

and are its gradient. In two dimensions, with scores :math:`(t, 0)`, the maximum is a smoothed ``max(t, 0)`` and the
mapping a sigmoid: this is the paper's Figure 2. Softmax alone never reaches 0 and 1.
"""

from regmax.plots import mapping_curves, mapping_surfaces

figure = mapping_curves(gamma=1.0)

# %%
# A smaller gamma brings the curves closer to the maximum itself, and the mappings closer to a step.

figure = mapping_curves(gamma=0.25)

# %%
# In three dimensions, with scores :math:`(t_1, t_2, 0)`, the first weight is a surface. The flat parts are what tells
# the mappings apart: at 0 and at 1 the weights are sparse, and on the ledges between, where fusedmax and oscarmax have
# them, two weights are equal.

figure = mapping_surfaces(points=41)
