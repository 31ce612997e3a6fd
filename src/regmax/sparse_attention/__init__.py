"""Attention with sparse weights: `regmax.attention`.

The public name is `regmax.attention`; the folder has a different name so that the two do not collide.
"""

from regmax.sparse_attention.call import attention
from regmax.sparse_attention.screen import KeyScreen
from regmax.sparse_attention.weights import SparseWeights

__all__ = ["KeyScreen", "SparseWeights", "attention"]
