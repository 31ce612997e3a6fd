"""Hugging Face models with any mapping: after `register()` each is an `attn_implementation`.

    from transformers import AutoModel
    from regmax.integrations import transformers as sparse

    sparse.register()
    model = AutoModel.from_pretrained("bert-base-uncased", attn_implementation="fusedmax")
    sparse.check(model, tokenizer("A sentence.", return_tensors="pt"))

`output_attentions=True` in a call gives the sparse weights. A model that does not ask for an implementation (Bloom,
MPT, DeBERTa) takes the name, computes softmax, and may misread the boolean masks that go with the name: hence `check`.
"""

from regmax.integrations.transformers.checking import check
from regmax.integrations.transformers.registry import register
from regmax.integrations.transformers.saving import from_pretrained, save_pretrained

__all__ = ["check", "from_pretrained", "register", "save_pretrained"]
