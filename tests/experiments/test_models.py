"""The models can learn, padding changes nothing, and two levels of output are one distribution."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny import start, tiny

from regmax.experiments.data.batches import padded
from regmax.experiments.data.pairs import Pair
from regmax.experiments.data.vocabulary import END, START, UNKNOWN
from regmax.experiments.models.entailment import Batch as Inference
from regmax.experiments.models.output import Output
from regmax.experiments.models.search import Hypothesis
from regmax.experiments.models.seq2seq import Batch
from regmax.mappings import MAPPINGS

CPU = torch.device("cpu")


@pytest.mark.parametrize("task", ["translation", "summarization", "entailment"])
@pytest.mark.parametrize("mapping", ["softmax", "fusedmax"])
def test_a_model_learns_a_tiny_set_by_heart(task: str, mapping: str, tmp_path: Path) -> None:
    sizes = {"words": 32, "hidden": 32, "generated": 8, "batch": 8, "epochs": 1, "dropout": 0.0}
    trainer = start(
        tiny(task, mapping=mapping, anneal_from=0.0, rate=0.02, warm_up=0.0, decay_from=1.0, **sizes),
        tmp_path / "run",
    )
    trainer.model.train()
    rows = trainer.task.epoch(0)[0]
    assert trainer._step(rows) > 1
    assert any(trainer._step(rows) < 0.1 for _ in range(200))


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_every_mapping_trains_and_tests(mapping: str, tmp_path: Path) -> None:
    trainer = start(
        tiny("summarization", mapping=mapping, epochs=1, gamma=0.01, anneal_from=0.05), tmp_path / "run"
    )
    trainer.run()
    result = trainer.task.test()
    assert result.attention["recall"] >= 0
    assert (result.attention["zeros"] == 0) == (mapping == "softmax")


def test_scaled_scores_are_divided_by_the_root_of_the_states_size(tmp_path: Path) -> None:
    def first_scores(scaled: bool) -> torch.Tensor:
        config = tiny(dropout=0.0, words=16, hidden=16, scaled=scaled)
        model = start(config, tmp_path / str(scaled)).task.model.eval()
        batch = Batch(torch.tensor([[4, 5, 6]]), torch.tensor([3]), torch.tensor([[START, 4, END]]))
        return model.teach(batch)[1][0].x

    torch.testing.assert_close(first_scores(True), first_scores(False) / 4)


def test_a_sentence_is_projected_once_for_all_words(tmp_path: Path) -> None:
    model = start(tiny(dropout=0.0), tmp_path / "run").task.model.eval()
    projections: list[None] = []
    model.attend.key.register_forward_hook(lambda *_: projections.append(None))
    model(Batch(torch.tensor([[4, 5, 6]]), torch.tensor([3]), torch.tensor([[START, 4, 5, 6, END]])))
    assert len(projections) == 1


def test_an_unknown_word_is_copied_from_where_attention_looked(tmp_path: Path) -> None:
    y = torch.tensor([[0.0, 1.0], [0.6, 0.4], [0.5, 0.5]])
    hypothesis = Hypothesis([UNKNOWN, 4, END], 0.0, y, y)
    pair = Pair(("seen", "unheard"), (("a",),))
    for copy, first in ((True, "unheard"), (False, "<unk>")):
        task = start(tiny(copy_unknown=copy), tmp_path / str(copy)).task
        assert task._text(pair, hypothesis) == (first, task.target_words.words[4])


def test_padding_does_not_change_a_translation(tmp_path: Path) -> None:
    model = start(tiny(dropout=0.0), tmp_path / "run").task.model.eval()
    sources, targets = [[4, 5, 6, 7], [5, 6]], [[START, 4, END], [START, 6, 5, 4, END]]
    lengths = torch.tensor([4, 2])
    together = model(Batch(padded(sources, CPU), lengths, padded(targets, CPU)))
    apart = sum(
        model(Batch(torch.tensor([s]), torch.tensor([len(s)]), torch.tensor([t])))
        for s, t in zip(sources, targets, strict=True)
    )
    torch.testing.assert_close(together, apart)


def test_padding_does_not_change_an_inference(tmp_path: Path) -> None:
    model = start(tiny("entailment", dropout=0.0), tmp_path / "run").task.model.eval()
    premises, hypotheses, labels = [[4, 5, 6, 7], [5, 6]], [[4], [6, 5, 4]], torch.tensor([0, 2])
    together = model.read(
        Inference(
            padded(premises, CPU), torch.tensor([4, 2]), padded(hypotheses, CPU), torch.tensor([1, 3]), labels
        )
    )
    for i, (premise, hypothesis) in enumerate(zip(premises, hypotheses, strict=True)):
        alone = model.read(
            Inference(
                torch.tensor([premise]),
                torch.tensor([len(premise)]),
                torch.tensor([hypothesis]),
                torch.tensor([len(hypothesis)]),
                labels[i : i + 1],
            )
        )
        torch.testing.assert_close(together.logits[i], alone.logits[0])
        torch.testing.assert_close(together.y[i, : len(premise)], alone.y[0])


@pytest.mark.parametrize("frequent", [0, 3, 20])
def test_the_output_is_one_distribution(frequent: int) -> None:
    torch.manual_seed(0)
    output, hidden, words = Output(4, 10, frequent), torch.randn(6, 4), torch.tensor([0, 2, 3, 9, 5, 1])
    log_p = output(hidden)
    torch.testing.assert_close(log_p.exp().sum(1), torch.ones(6))
    torch.testing.assert_close(output.loss(hidden, words), -log_p[torch.arange(6), words].sum())


def test_the_output_shares_its_weights_with_the_embedding() -> None:
    embedding = torch.nn.Embedding(10, 4)
    assert Output(4, 10, 3, embedding).weight is embedding.weight
