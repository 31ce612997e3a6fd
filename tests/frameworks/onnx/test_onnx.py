"""ONNX programs made by `torch.onnx.export(dynamo=True)` agree with torch, at sizes that they were not traced with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from long_cases import represented
from torch import Tensor
from torch.export import Dim

import regmax
from regmax.mappings import MAPPINGS

pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")

TOLERANCE = 2e-6
BATCH, LENGTH, KEYS = Dim("batch"), Dim("length"), Dim("keys")


class Program:
    """A module in onnxruntime."""

    def __init__(self, module: torch.nn.Module, inputs: Any, shapes: Any, **options: Any) -> None:
        program = torch.onnx.export(
            module, inputs, dynamo=True, dynamic_shapes=shapes, verbose=False, **options
        )
        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 3
        settings.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(program.model_proto.SerializeToString(), settings)

    def __call__(self, *inputs: Tensor) -> list[np.ndarray]:
        names = [put.name for put in self._session.get_inputs()]
        return self._session.run(None, {n: x.numpy() for n, x in zip(names, inputs, strict=True)})


class Mapping(torch.nn.Module):
    """A mapping with its default strength, which is a constant of the program."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.function = getattr(regmax, name)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """The weights."""
        return self.function(x, mask=mask)


# Attention, compositions and models export the others; the conformance suite all of them, with strengths as inputs.
@pytest.mark.parametrize("name", represented(MAPPINGS, by=["sqpnormmax"]))
def test_a_mapping_at_sizes_it_was_not_traced_with(name: str) -> None:
    generator = torch.Generator().manual_seed(0)

    def scores(n: int, d: int) -> tuple[Tensor, Tensor]:
        return torch.randn(n, d, generator=generator), torch.rand(n, d, generator=generator) > 0.2

    rows = {0: BATCH, 1: LENGTH}
    program = Program(Mapping(name), scores(3, 7), (rows, rows))
    for size in ((3, 7), (5, 130), (9, 2), (3, 1), (1, 1), (1, 700)):
        x, mask = scores(*size)
        x[0, -1] = -torch.inf
        (y,) = program(x, mask)
        expected = getattr(regmax, name)(x, mask=mask).numpy()
        assert np.abs(y - expected).max() <= TOLERANCE
        assert np.array_equal(y != 0, expected != 0)


class Attend(torch.nn.Module):
    """Causal attention, and multi-head attention on top of it."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = regmax.nn.MultiheadAttention(16, 2, batch_first=True, mapping="entmax")

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The output."""
        x = regmax.attention(q, k, v, mapping="fusedmax", is_causal=True).transpose(1, 2).flatten(2)
        return self.attend(x, x, x, need_weights=False)[0]


def test_attention_at_sizes_it_was_not_traced_with() -> None:
    torch.manual_seed(0)
    module = Attend().eval()

    def heads(batch: int, queries: int, keys: int) -> tuple[Tensor, ...]:
        return tuple(torch.randn(batch, 2, n, 8) for n in (queries, keys, keys))

    keys = {0: BATCH, 2: KEYS}
    program = Program(module, heads(2, 5, 7), ({0: BATCH, 2: LENGTH}, keys, keys))
    for size in ((2, 5, 7), (3, 20, 40), (1, 1, 1), (1, 3, 100)):
        inputs = heads(*size)
        assert np.abs(program(*inputs)[0] - module(*inputs).detach().numpy()).max() <= TOLERANCE


class Paper(torch.nn.Module):
    """The paper's approximation of oscarmax, by two kernels in turn."""

    def forward(self, x: Tensor) -> Tensor:
        """The weights."""
        return regmax.regularized_argmax(regmax.OscarComposition(0.02), x, dim=1, gamma=0.5)


def test_a_composition_along_another_dimension() -> None:
    generator = torch.Generator().manual_seed(0)
    program = Program(Paper(), (torch.randn(2, 5, 3, generator=generator),), ({0: BATCH, 1: LENGTH},))
    for size in ((2, 5, 3), (1, 40, 3), (4, 1, 3)):
        x = torch.randn(*size, generator=generator)
        assert np.abs(program(x)[0] - Paper()(x).numpy()).max() <= TOLERANCE


def test_a_hugging_face_encoder() -> None:
    transformers = pytest.importorskip("transformers")
    import regmax.integrations.transformers as hugging

    hugging.register("onnx_oscarmax", "oscarmax,lam=0.05")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=29, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24
    )
    model = transformers.BertModel._from_config(config, attn_implementation="onnx_oscarmax").eval()

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, words: Tensor, mask: Tensor) -> Tensor:
            return self.model(input_ids=words, attention_mask=mask).last_hidden_state

    def sentences(batch: int, length: int) -> tuple[Tensor, Tensor]:
        mask = torch.ones(batch, length, dtype=torch.long)
        mask[0, length - 3 :] = 0
        return torch.randint(0, 29, (batch, length)), mask

    rows = {0: BATCH, 1: LENGTH}
    program = Program(Encoder().eval(), sentences(2, 11), (rows, rows))
    for size in ((2, 11), (3, 24)):
        inputs = sentences(*size)
        with torch.no_grad():
            expected = Encoder()(*inputs).numpy()
        assert np.abs(program(*inputs)[0] - expected).max() <= TOLERANCE


class TabNet(torch.nn.Module):
    """Steps that select features by sparse masks, as TabNet does, and a prior that penalises features used before."""

    def __init__(self, features: int, width: int = 8, steps: int = 2, relaxation: float = 1.3) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(features)
        self.transform = torch.nn.ModuleList(torch.nn.Linear(features, 2 * width) for _ in range(steps + 1))
        self.select = torch.nn.ModuleList(torch.nn.Linear(width, features) for _ in range(steps))
        self.mappings = (regmax.sparsemax, regmax.entmax)
        self.head, self.width, self.relaxation = torch.nn.Linear(width, 1), width, relaxation

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The prediction, and the masks."""
        x = self.norm(x)
        prior, total, masks = torch.ones_like(x), x.new_zeros(x.shape[0], self.width), []
        hidden = self.transform[0](x)[..., self.width :]
        for select, transform, mapping in zip(
            self.select, list(self.transform)[1:], self.mappings, strict=True
        ):
            mask = mapping(select(hidden) * prior)
            prior = prior * (self.relaxation - mask)
            decision, hidden = torch.nn.functional.glu(transform(x * mask).repeat(1, 2)).chunk(2, -1)
            total = total + decision.relu()
            masks.append(mask)
        return self.head(total), torch.stack(masks)


def test_a_tabnet_with_sparsemax_and_entmax() -> None:
    torch.manual_seed(0)
    module = TabNet(12).eval()
    program = Program(module, (torch.randn(4, 12),), ({0: BATCH},))
    x = 3 * torch.randn(33, 12)
    prediction, masks = program(x)
    expected, wanted = module(x)
    assert np.abs(prediction - expected.detach().numpy()).max() <= TOLERANCE
    assert np.abs(masks - wanted.detach().numpy()).max() <= TOLERANCE
    assert (masks == 0).mean() > 0.2
