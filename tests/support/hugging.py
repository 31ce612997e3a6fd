"""Tiny models of transformers, randomly initialised, and inputs with padding for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers

WORDS, PAD = 29, 0
# The second sequence has REAL words, then padding. All are long enough for the sparse kernels.
BATCH, LENGTH, REAL, TARGET = 2, 11, 8, 9


@dataclass(frozen=True)
class Model:
    """A model and its inputs."""

    config: Callable[[], Any]
    model_class: Any
    causal: bool = False
    encoder_decoder: bool = False
    pixels: bool = False
    sharpen: float = 5.0  # with most default initialisations every mapping would be uniform

    def build(self, implementation: str, seed: int = 0) -> Any:
        """The model in evaluation mode; the same seed gives the same weights."""
        torch.manual_seed(seed)
        # transformers writes the implementation into the config: each model gets a copy.
        model = self.model_class._from_config(self.config(), attn_implementation=implementation).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.ndim > 1 and "shared" not in name and "wte" not in name and "embed" not in name:
                    parameter.mul_(self.sharpen)
        return model

    def inputs(self, *, left: bool = False) -> dict[str, torch.Tensor]:
        """Two sequences, the second padded, on the left or on the right; the decoder's are not padded."""
        generator = torch.Generator().manual_seed(1)
        if self.pixels:
            return {"pixel_values": torch.randn(BATCH, 3, 12, 12, generator=generator)}
        words = torch.randint(3, WORDS, (BATCH, LENGTH), generator=generator)
        mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
        padding = slice(0, LENGTH - REAL) if left else slice(REAL, LENGTH)
        words[1, padding], mask[1, padding] = PAD, 0
        inputs = {"input_ids": words, "attention_mask": mask}
        if self.encoder_decoder:
            inputs["decoder_input_ids"] = torch.randint(3, WORDS, (BATCH, TARGET), generator=generator)
        return inputs

    def real(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """True for outputs of words, False for padding, (batch, length)."""
        if self.pixels:
            return torch.ones(BATCH, 10, dtype=torch.bool)  # nine patches and the class
        if self.encoder_decoder:
            return torch.ones_like(inputs["decoder_input_ids"], dtype=torch.bool)
        return inputs["attention_mask"].bool()


def output(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """The logits, or else the hidden states."""
    out = model(**inputs)
    return out.logits if "logits" in out else out.last_hidden_state


MODELS = {
    "bert": Model(
        lambda: transformers.BertConfig(
            vocab_size=WORDS, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24
        ),
        transformers.BertForMaskedLM,
    ),
    "gpt2": Model(
        lambda: transformers.GPT2Config(
            vocab_size=WORDS, n_embd=16, n_layer=2, n_head=2, n_positions=32, pad_token_id=PAD, eos_token_id=1
        ),
        transformers.GPT2LMHeadModel,
        causal=True,
    ),
    "llama": Model(
        lambda: transformers.LlamaConfig(
            vocab_size=WORDS,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=24,
            pad_token_id=PAD,
            eos_token_id=1,
        ),
        transformers.LlamaForCausalLM,
        causal=True,
    ),
    "bart": Model(
        lambda: transformers.BartConfig(
            vocab_size=WORDS,
            d_model=16,
            encoder_layers=1,
            decoder_layers=2,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=24,
            decoder_ffn_dim=24,
            max_position_embeddings=32,
            pad_token_id=PAD,
            eos_token_id=1,
            bos_token_id=2,
            decoder_start_token_id=2,
            forced_eos_token_id=None,
        ),
        transformers.BartForConditionalGeneration,
        causal=True,
        encoder_decoder=True,
    ),
    "t5": Model(
        lambda: transformers.T5Config(
            vocab_size=WORDS,
            d_model=16,
            d_kv=8,
            d_ff=24,
            num_layers=2,
            num_heads=2,
            pad_token_id=PAD,
            eos_token_id=1,
            decoder_start_token_id=2,
        ),
        transformers.T5ForConditionalGeneration,
        causal=True,
        encoder_decoder=True,
        sharpen=1.0,
    ),
    "vit": Model(
        lambda: transformers.ViTConfig(
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=24,
            image_size=12,
            patch_size=4,
        ),
        transformers.ViTModel,
        pixels=True,
    ),
}
