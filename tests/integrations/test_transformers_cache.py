"""`ScreenedCache`: a model generates the same with it, and its operations keep the copy equal to the keys."""

from typing import Any

import pytest
import torch

import regmax
from regmax.integrations import transformers as sparse
from regmax.kernels import native

transformers = pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def _screen() -> None:
    native.use_int8_screen(True)
    if not (native.int8_screen() and native.instruction_set() == "avx512"):
        pytest.skip("This machine has no AVX-512 VNNI.")


def model() -> Any:
    sparse.register()
    config = transformers.LlamaConfig(
        vocab_size=50,
        hidden_size=128,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        pad_token_id=0,
        eos_token_id=None,
        attn_implementation="sparsemax",
    )
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("beams", [1, 3])
def test_generation_is_the_same(beams: int) -> None:
    llama = model()
    ids = torch.randint(1, 50, (2, 600), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[0, :30] = 0
    options: dict[str, Any] = {"max_new_tokens": 5, "do_sample": False, "num_beams": beams}
    options |= {"attention_mask": mask, "return_dict_in_generate": True, "output_logits": True}
    plain = llama.generate(ids, past_key_values=transformers.DynamicCache(), **options)
    native.screen_counts(reset=True)
    cache = sparse.ScreenedCache()
    screened = llama.generate(ids, past_key_values=cache, **options)
    assert native.screen_counts(reset=True).rows > 0
    assert torch.equal(plain.sequences, screened.sequences)
    assert all(torch.equal(a, b) for a, b in zip(plain.logits, screened.logits, strict=True))
    assert cache.screen_bytes < 0.3 * sum(4 * layer.keys.numel() for layer in cache.layers)


def test_operations_keep_the_copy_equal_to_the_keys() -> None:
    cache = sparse.ScreenedCache()
    random = torch.Generator().manual_seed(0)

    def grow(batch: int, new: int) -> torch.Tensor:
        k, v = (torch.randn(batch, 2, new, 32, generator=random) for _ in range(2))
        keys: torch.Tensor = cache.update(k, v, 0)[0]
        return keys

    def check() -> None:
        layer = cache.layers[0]
        assert layer.screen.shape == layer.keys.shape
        q = 3 * torch.randn(layer.keys.shape[0], 2, 1, 32, generator=random)
        out = regmax.attention(q, layer.keys, layer.values, mapping="sparsemax")
        same = regmax.attention(q, layer.keys, layer.values, mapping="sparsemax", key_screen=layer.screen)
        assert torch.equal(out, same)

    grow(2, 600)
    grow(2, 1)
    check()
    cache.crop(-20)
    check()
    grow(2, 3)
    check()
    cache.batch_repeat_interleave(2)
    check()
    cache.reorder_cache(torch.tensor([3, 0, 1, 1]))
    check()
    cache.batch_select_indices(torch.tensor([0, 2]))
    grow(2, 1)
    check()
    cache.reset()
    assert cache.screen_bytes == 0
    grow(1, 550)
    check()


def test_layers_that_cannot_be_copied_only_keep_the_keys() -> None:
    cache = sparse.ScreenedCache()
    half = torch.randn(1, 2, 10, 32).bfloat16()
    keys, _ = cache.update(half, half, 0)
    assert torch.equal(keys, half)
    assert cache.screen_bytes == 0
