"""Two processes make the same steps as one process on the same batches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny import options, start, tensors, tiny

from regmax.experiments.training import checkpoints, runs
from regmax.experiments.training.distributed import World


def test_two_processes_make_the_steps_of_one(tmp_path: Path) -> None:
    # 41 pairs in batches of 4: the last batch has one row, so one process has none.
    config = tiny(generated=41, batch=4, dropout=0.0, frequent=20)
    trainer = start(config, tmp_path / "one")
    trainer.run()
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "regmax"]
    given = ["train", "translation", *options(config), "--dropout", "0", "--frequent", "20"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, *command, *given, "--out", str(tmp_path / "two")],
        env=environment, check=True, timeout=300, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    losses = [
        [record["train loss"] for record in checkpoints.read(tmp_path / which / runs.LAST)[1]["history"]]
        for which in ("one", "two")
    ]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    one, two = tensors(tmp_path / "one"), tensors(tmp_path / "two")
    for name in (name for name in one if name.startswith("model.")):
        torch.testing.assert_close(two[name], one[name], rtol=1e-3, atol=1e-4)


def test_every_row_has_one_process() -> None:
    worlds = [World(rank, 3, torch.device("cpu")) for rank in range(3)]
    shares = [world.share([5, 6, 7, 8]) for world in worlds]
    assert sorted(row for share in shares for row in share) == [5, 6, 7, 8]
    assert worlds[2].share([5, 6]) == []
