"""A task that needs attention: a tiny encoder learns it with each mapping as well as with softmax."""

from __future__ import annotations

import pytest
import torch
from long_cases import represented
from torch import Tensor, nn
from torch.nn import functional

import regmax

MAPPINGS = ("softmax", "sparsemax", "fusedmax", "oscarmax", "sqpnormmax", "entmax")
NAMES, VALUES, FACTS, WIDTH = 12, 6, 6, 32


class Retriever(nn.Module):
    """Reads facts "name has value" and a name, and predicts the value with a single layer of attention."""

    def __init__(self, mapping: str) -> None:
        super().__init__()
        self.names, self.values = nn.Embedding(NAMES, WIDTH), nn.Embedding(VALUES, WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.answer = nn.Linear(WIDTH, VALUES)
        regmax.replace_attention(self, mapping)

    def forward(self, names: Tensor, values: Tensor, question: Tensor) -> Tensor:
        """Logits of the values, (batch, VALUES)."""
        facts = self.names(names) + self.values(values)  # (batch, FACTS, WIDTH)
        asked = self.names(question)[:, None]
        return self.answer(self.layer(torch.cat([facts, asked], 1))[:, -1])


def facts(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Names, their values, the requested name, and its value."""
    names = torch.rand(n, NAMES, generator=generator).argsort(-1)[:, :FACTS]  # distinct
    values = torch.randint(VALUES, (n, FACTS), generator=generator)
    place = torch.randint(FACTS, (n, 1), generator=generator)
    return names, values, names.gather(1, place)[:, 0], values.gather(1, place)[:, 0]


@pytest.mark.parametrize("mapping", represented(MAPPINGS, by=["fusedmax", "entmax"]))
def test_a_tiny_encoder_learns_to_look_up(mapping: str) -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = Retriever(mapping)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(300):
        *question, answer = facts(64, generator)
        optimizer.zero_grad()
        functional.cross_entropy(model(*question), answer).backward()
        optimizer.step()
    *question, answer = facts(1000, generator)
    with torch.no_grad():
        accuracy = (model.eval()(*question).argmax(-1) == answer).float().mean()
    assert accuracy > 0.97
