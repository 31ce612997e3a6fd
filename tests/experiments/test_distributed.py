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


def run_two(*command: str) -> None:
    """Run a Python program in two processes of one group."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([*torchrun, *command], env=environment, check=True, timeout=300, stdout=subprocess.DEVNULL)


def test_two_processes_make_the_steps_of_one(tmp_path: Path) -> None:
    # 41 pairs in batches of 4: the last batch has one row, so one process has none.
    config = tiny(generated=41, batch=4, dropout=0.0, frequent=20)
    trainer = start(config, tmp_path / "one")
    trainer.run()
    given = ["train", "translation", *options(config), "--dropout", "0", "--frequent", "20"]
    run_two("-m", "regmax", *given, "--out", str(tmp_path / "two"))
    losses = [
        [record["train loss"] for record in checkpoints.read(tmp_path / which / runs.LAST)[1]["history"]]
        for which in ("one", "two")
    ]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    one, two = tensors(tmp_path / "one"), tensors(tmp_path / "two")
    for name in (name for name in one if name.startswith("model.")):
        torch.testing.assert_close(two[name], one[name], rtol=1e-3, atol=1e-4)


_LEAVES = """
from pathlib import Path
import torch
from regmax.experiments.training.distributed import join

def train():
    with join("cpu") as world:
        wrapped = world.wrap(torch.nn.Linear(3, 3))
        wrapped(torch.ones(2, 3)).sum().backward()
        world.total(torch.ones(1))

train()
names = {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}
assert not any("gloo" in name for name in names), names
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_no_thread_of_the_group_is_left_when_it_is_destroyed(tmp_path: Path) -> None:
    script = tmp_path / "leaves.py"
    script.write_text(_LEAVES)
    run_two(str(script))


def test_every_row_has_one_process() -> None:
    worlds = [World(rank, 3, torch.device("cpu")) for rank in range(3)]
    shares = [world.share([5, 6, 7, 8]) for world in worlds]
    assert sorted(row for share in shares for row in share) == [5, 6, 7, 8]
    assert worlds[2].share([5, 6]) == []
