"""Hugging Face models with any mapping: after `register()`, every mapping is an `attn_implementation`.

    from transformers import AutoModel
    from regmax.integrations import transformers as sparse

    sparse.register()
    model = AutoModel.from_pretrained("bert-base-uncased", attn_implementation="fusedmax")
    sparse.check(model, tokenizer("A sentence.", return_tensors="pt"))

`output_attentions=True` in a call returns the sparse weights. A model that ignores `attn_implementation` (Bloom, MPT,
DeBERTa) accepts the name, computes softmax, and may misread the boolean masks that come with the name: use `check`.
"""

from regmax.integrations.transformers.caching import ScreenedCache
from regmax.integrations.transformers.checking import check
from regmax.integrations.transformers.distillation import Distillation
from regmax.integrations.transformers.layers import prepare
from regmax.integrations.transformers.registry import register
from regmax.integrations.transformers.report import HeadReport, SparsifyReport
from regmax.integrations.transformers.sampling import SparseLogitsProcessor
from regmax.integrations.transformers.saving import from_pretrained, save_pretrained
from regmax.integrations.transformers.sparsify import sparsify_attention
from regmax.integrations.transformers.tuning import Tuning

__all__ = [
    "Distillation",
    "HeadReport",
    "ScreenedCache",
    "SparseLogitsProcessor",
    "SparsifyReport",
    "Tuning",
    "check",
    "from_pretrained",
    "prepare",
    "register",
    "save_pretrained",
    "sparsify_attention",
]
