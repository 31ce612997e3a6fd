"""
BERT with fusedmax
==================

Hugging Face models take a mapping by name. The model here is a small BERT with random weights, so that the page needs
no download. The same code works with ``from_pretrained`` and a model in a local folder.
"""

import torch
import transformers

import regmax
from regmax.integrations import transformers as sparse
from regmax.plots import attention_heads, attention_heatmap

sentence = "[CLS] the keeper of the old lighthouse lit the lamp [SEP] [PAD] [PAD]"
words = sentence.split()
vocabulary = sorted(set(words))
inputs = {
    "input_ids": torch.tensor([[vocabulary.index(word) for word in words]]),
    "attention_mask": torch.tensor([[int(word != "[PAD]") for word in words]]),
}

# %%
# After ``register()``, every mapping is an ``attn_implementation``. A regularizer with other strengths is registered
# under another name.

sparse.register()
sparse.register("fusedmax-strong", regmax.FusedLasso(lam=0.3))

torch.manual_seed(0)
config = transformers.BertConfig(
    vocab_size=len(vocabulary),
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=128,
    initializer_range=0.35,
)
model = transformers.AutoModel.from_config(config, attn_implementation="fusedmax").eval()

# %%
# Some models accept the name but compute softmax. ``check`` runs the model once, counts the calls of every layer, and
# raises if a layer does not use the mapping.

print(sparse.check(model, inputs))

# %%
# The model returns the weights as usual. Grey cells are exactly zero, including the padding; adjacent cells without a
# border are equal to the last bit.

with torch.no_grad():
    attentions = model(**inputs, output_attentions=True).attentions
figure = attention_heatmap(attentions[1][0, 0], words, words)

# %%
# All layers and heads in one figure, with the larger ``lam``:

model.set_attn_implementation("fusedmax-strong")
with torch.no_grad():
    attentions = model(**inputs, output_attentions=True).attentions
figure = attention_heads(attentions)

# %%
# A trained model must be fine-tuned after the switch: ``examples/bert_fusedmax.py`` shows all steps, including saving
# and loading.
